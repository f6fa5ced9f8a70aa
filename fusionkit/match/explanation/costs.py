"""What each deviation of an alignment costs."""

# What a step costs. Only the order matters: a literal is the smallest difference, one node as two and nodes that
# have nothing in common the largest; passing over a cast is a little cheaper than passing over anything else.
LITERAL, OVERLOAD, ORDER, COMPOSITE, CAST, ONE_SIDED, OTHER_OP = 0.05, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5
SHARED, STRANGE = 1.2, 1.9
AGAIN = 0.6  # a further cast in a row
EDGE = 0.6  # an operand that is not followed
ODD = 0.6  # an argument that meets a tensor unlike its example
CHEAPEST = 0.6  # of the steps that do not pair two calls of one op
