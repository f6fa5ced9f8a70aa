"""The ops that code can be replaced by, and the hazards that keep a replacement from being right: two literal tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FusedOp:
    """One row: the op, what code it takes the place of, and where that is told.

    `priority`: 1 high to 3 low, before hazards. `backward`: whether torch_npu differentiates it. `api`: its name in
    torch_npu's documentation, "" where the replacement is plain torch.
    """

    name: str
    code: str
    code_zh: str
    priority: int
    backward: bool
    api: str
    source: str


OPS: tuple[FusedOp, ...] = (
    FusedOp("npu_rms_norm", "RMSNorm written out", "手写 RMSNorm", 1, True, "npu_rms_norm", "op-plugin test_npu_rms_norm.py"),
    FusedOp("npu_add_rms_norm", "residual addition into an RMSNorm", "残差加 + RMSNorm", 2, False, "npu_add_rms_norm",
            "op-plugin test_npu_add_rms_norm.py"),
    FusedOp("npu_swiglu", "SiLU gate", "SwiGLU 门控乘法", 1, True, "npu_swiglu", "op-plugin test_npu_swi_glu.py"),
    FusedOp("npu_geglu", "GELU gate", "GEGLU 门控乘法", 2, True, "npu_geglu", "ops-nn ge_glu_v2"),
    FusedOp("npu_rotary_mul", "rotary position embedding", "旋转位置编码", 1, True, "npu_rotary_mul",
            "op-plugin test_npu_rotary_mul.py"),
    FusedOp("npu_fusion_attention", "attention", "注意力（Q@K^T→mask→softmax→@V）", 1, True, "npu_fusion_attention",
            "op-plugin test_npu_flash_attention.py"),
    FusedOp("npu_grouped_matmul", "loop over experts", "MoE 专家循环 matmul", 1, False, "npu_grouped_matmul",
            "op-plugin test_npu_grouped_matmul.py"),
    FusedOp("npu_gelu", "GELU", "GELU", 3, True, "npu_gelu", "op-plugin test_npu_gelu.py"),
    FusedOp("npu_scaled_masked_softmax", "masked softmax", "带 mask 的 softmax", 3, True, "npu_scaled_masked_softmax",
            "op-plugin test_scaled_masked_softmax.py"),
    FusedOp("affinity_index_put", "assignment at a mask", "IndexPut（按 mask 赋值）", 3, True, "", "affinity ops"),
    FusedOp("affinity_where", "where", "where", 3, True, "", "affinity ops"),
    FusedOp("NpuFusedAdamW", "Adam or AdamW", "Adam / AdamW 优化器", 2, True, "npu_fused_adamw", "affinity API"),
)  # fmt: skip

# Hazard -> what it means for the replacement. The order is that of the report.
HAZARDS: dict[str, str] = {
    "one_plus_weight": "multiplies by 1 + weight: hand weight + 1 to the op, or use npu_gemma_rms_norm",
    "weight_none": "there may be no weight: the op needs one, so hand it ones",
    "fp32_weight_bf16_input": "the weight is float32 beside a half precision input",
    "dtype_order": "rounds in another order than the op does: results differ by a rounding step",
    "eps_inside_or_outside": "eps is not simply added to the mean square: check it against the op's",
    "gate_second_half": "the second half is activated: npu_swiglu activates the first, npu_geglu the second by default",
    "clamp_or_bias_in_gate": "a clamp, constant or factor in the gate: the plain op leaves it out",
    "rope_interleave": "pairs are neighbours: rotary_mode 'interleave', which knows few broadcast forms",
    "rope_complex": "a complex product: real cos and sin have to be made first",
    "rope_partial": "only part of the head is rotated: slice, rotate, concatenate",
    "rope_half_width_cos_sin": "cos and sin have half the width: the op needs the full one",
    "rope_per_batch_cos_sin": "cos and sin have a batch dimension: check the broadcast form",
    "rope_reversed": "turns the other way than the op does: hand it minus sin",
    "rope_2d": "several position axes share the head dimension",
    "gqa": "fewer key and value heads: do not repeat them, the op does",
    "mask_additive": "the mask is added: the op wants a boolean one, True drops (or pse, before the scale)",
    "mask_bool_keep": "True keeps in this mask, and drops in the op's: invert it",
    "softcap": "tanh soft cap of the scores: the op has none",
    "sinks": "attention sinks: the plain op has none",
    "sliding_window": "a sliding window: sparse_mode 4 with pre_tockens",
    "dropout": "dropout of the probabilities: keep_prob, another random stream",
    "expert_bias": "experts have biases: add them separately by group",
    "weight_layout_EN_K": "weights are stacked [E, N, K]: the op wants [E, K, N]",
    "dispatch_elsewhere": "other code may run here by default: make sure this is what runs",
    "scale_not_rsqrt_d": "the scale is not 1 / sqrt(head_dim): hand it over, the op's default is 1.0",
    "relative_position_bias": "a position bias is added to the scores: pse, divided by the scale",
    "alibi": "ALiBi: pse with its own pse_type",
    "cross_attention": "keys and values may come from elsewhere: query and key lengths differ",
    "not_softmax": "no softmax normalises the scores: the op cannot",
    "head_sizes": "query and key have another head size than value, or one that the op does not take",
    "dynamic_shape": "a shape depends on data: the NPU compiles anew for each",
    "non_contiguous": "an operand is a slice or transpose: call contiguous() first",
    "training_backward": "the op has no backward in torch_npu: inference only, or an autograd wrapper",
}

OP_NAMES = tuple(op.name for op in OPS)


def fused_op(name: str) -> FusedOp:
    """The row of an op. Raises KeyError for a name that is not in the table."""
    return {op.name: op for op in OPS}[name]
