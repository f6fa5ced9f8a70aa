"""One fusion per file. Stage one of registration: a group is exported here."""

from fusionkit.patterns.ada_layer_norm_pattern import AdaLayerNormPatternGroup
from fusionkit.patterns.gelu_pattern import GeluPatternGroup
from fusionkit.patterns.pattern_base import PatternBase
from fusionkit.patterns.rms_norm_pattern import RmsNormPatternGroup
from fusionkit.patterns.rope_pattern import RopePatternGroup
from fusionkit.patterns.swiglu_pattern import SwigluPatternGroup

__all__ = [
    "AdaLayerNormPatternGroup",
    "GeluPatternGroup",
    "PatternBase",
    "RmsNormPatternGroup",
    "RopePatternGroup",
    "SwigluPatternGroup",
]
