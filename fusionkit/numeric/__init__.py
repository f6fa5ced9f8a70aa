"""Comparison of outputs against a float64 reference."""
