"""Comparison of outputs against a float64 reference."""

from fusionkit.numeric.compare import compare_outputs
from fusionkit.numeric.comparison import Comparison
from fusionkit.numeric.tolerance import Tolerance

__all__ = ["Comparison", "Tolerance", "compare_outputs"]
