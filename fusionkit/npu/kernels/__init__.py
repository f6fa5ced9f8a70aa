"""CPU reference kernels, one family per module."""
