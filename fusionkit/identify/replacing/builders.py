"""Which builder writes an op's replacement, and the hazards that no builder can meet: two literal tables."""

from __future__ import annotations

from collections.abc import Callable

from fusionkit.identify.replacing.added_norms import replace_added_norm
from fusionkit.identify.replacing.affinity import replace_mask_assignment, replace_where
from fusionkit.identify.replacing.attention import replace_attention
from fusionkit.identify.replacing.experts import replace_experts
from fusionkit.identify.replacing.gates import replace_gate
from fusionkit.identify.replacing.gelus import calls_of_gelus, replace_gelu
from fusionkit.identify.replacing.norm_calls import calls_of_class
from fusionkit.identify.replacing.norms import replace_rms_norm
from fusionkit.identify.replacing.optimizers import replace_optimizer
from fusionkit.identify.replacing.place import Place
from fusionkit.identify.replacing.replacement import Change
from fusionkit.identify.replacing.rotations import replace_rotation
from fusionkit.identify.replacing.statements import Statements
from fusionkit.identify.rules.unit import Unit

Builder = Callable[[Place], list[Change]]
CallBuilder = Callable[[Unit, Statements, str], list[Change]]

BUILDERS: dict[str, Builder] = {
    "npu_rms_norm": replace_rms_norm,
    "npu_swiglu": replace_gate,
    "npu_geglu": replace_gate,
    "npu_rotary_mul": replace_rotation,
    "npu_fusion_attention": replace_attention,
    "npu_grouped_matmul": replace_experts,
    "npu_add_rms_norm": replace_added_norm,
    "npu_gelu": replace_gelu,
    "affinity_index_put": replace_mask_assignment,
    "affinity_where": replace_where,
    "NpuFusedAdamW": replace_optimizer,
}

# Ops whose site may be a module that __init__ builds: what is changed are its calls, in every method of the class.
CALLS: dict[str, CallBuilder] = {
    "npu_rms_norm": calls_of_class,
    "npu_gelu": calls_of_gelus,
}

# op -> hazard -> why the op cannot take the code's place (facts: op-plugin documentation of the op)
_BENT_GATE = {
    "clamp_or_bias_in_gate": "the gate holds a clamp, a constant or a factor that the op leaves out"
}

REFUSED_HAZARDS: dict[str, dict[str, str]] = {
    "npu_swiglu": _BENT_GATE,
    "npu_geglu": _BENT_GATE,
    "npu_add_rms_norm": {
        "one_plus_weight": "npu_add_rms_norm takes a weight of the input's dtype, to which 1 + weight would be rounded",
    },
    "npu_rotary_mul": {"rope_reversed": "the rotation turns the other way than the op's"},
    "npu_fusion_attention": {
        "sinks": "the softmax holds attention sinks, which the op of this form leaves out",
        "alibi": "ALiBi is added to the scores",
        "not_softmax": "the scores are not normalised by a softmax",
        "relative_position_bias": "a position bias is added to the scores",
    },
}
