"""One module for each kind of code that a fused op can take the place of."""
