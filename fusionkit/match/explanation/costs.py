"""The cost of each deviation of an alignment."""

# Only the order matters: a literal is the smallest difference; a node shared on one side only and unrelated ops are
# the largest; skipping a cast is a little cheaper than skipping any other node.
LITERAL, OVERLOAD, ORDER, COMPOSITE, CAST, ONE_SIDED, OTHER_OP = 0.05, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5
SHARED, STRANGE = 1.2, 1.9
AGAIN = 0.6  # a further cast in a row
EDGE = 0.6  # an operand that the alignment does not follow
ODD = 0.6  # an argument bound to a tensor unlike its example
CHEAPEST = 0.6  # the lowest cost of a step that does not pair two calls of one op
