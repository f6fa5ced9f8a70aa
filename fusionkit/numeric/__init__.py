"""Comparison of outputs against a float64 reference."""

from __future__ import annotations

from fusionkit.numeric.compare import compare_outputs
from fusionkit.numeric.comparison import Comparison
from fusionkit.numeric.reference import Float64Lift, float64_module, run_float64
from fusionkit.numeric.replay import RegimeReplay, SiteReplay, replay_site
from fusionkit.numeric.sensitivity import NoiseFloor, Sensitivity, noise_floor, smallest_visible_scale
from fusionkit.numeric.tolerance import Tolerance, ulp

__all__ = [
    "Comparison",
    "Float64Lift",
    "NoiseFloor",
    "RegimeReplay",
    "Sensitivity",
    "SiteReplay",
    "Tolerance",
    "compare_outputs",
    "float64_module",
    "noise_floor",
    "replay_site",
    "run_float64",
    "smallest_visible_scale",
    "ulp",
]
