"""All rules, in the order in which a report lists their ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fusionkit.identify.rules.add_rms_norm import find_added_norms
from fusionkit.identify.rules.attention import find_attention
from fusionkit.identify.rules.experts import find_experts
from fusionkit.identify.rules.gated import find_gates
from fusionkit.identify.rules.gelu import find_gelus
from fusionkit.identify.rules.masking import find_mask_assignments, find_masked_softmaxes, find_wheres
from fusionkit.identify.rules.optimizers import find_optimizers
from fusionkit.identify.rules.rms_norm import find_rms_norms
from fusionkit.identify.rules.rotary import find_rotations
from fusionkit.identify.rules.unit import Found, Unit

Rule = Callable[[Unit], Iterator[Found]]

RULES: tuple[Rule, ...] = (
    find_rms_norms,
    find_added_norms,
    find_gates,
    find_rotations,
    find_attention,
    find_experts,
    find_gelus,
    find_masked_softmaxes,
    find_mask_assignments,
    find_wheres,
    find_optimizers,
)

# An op whose finding makes another one at the same symbol superfluous: what it is part of is told instead.
CONTAINED = {
    "npu_gelu": "npu_geglu",
    "npu_scaled_masked_softmax": "npu_fusion_attention",
}
