"""What is recommended, and why in one sentence: literal tables over ops and hazards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Recommend = Literal["yes", "defer", "no"]


@dataclass(frozen=True, slots=True)
class Ruling:
    """One row. `hazard`: the one that it is about, "" for the op as such. `ops`: empty for every op."""

    hazard: str
    ops: tuple[str, ...]
    recommend: Recommend
    reason: str
    reason_zh: str
    source: str


# Hazards that speak against a replacement, worst first; others are risks to heed and no reason against it.
AGAINST: tuple[Ruling, ...] = (
    Ruling("not_softmax", (), "no",
           "the scores are not normalised by a softmax, and npu_fusion_attention has nothing else",
           "分数不是用 softmax 归一化的，而 npu_fusion_attention 只有 softmax", "op-plugin docs npu_fusion_attention"),
    Ruling("softcap", (), "no", "npu_fusion_attention has no tanh soft cap between the scores and the softmax",
           "npu_fusion_attention 在分数与 softmax 之间没有 tanh soft cap", "op-plugin docs npu_fusion_attention"),
    Ruling("clamp_or_bias_in_gate", ("npu_geglu",), "no",
           "the gate is clamped, scaled or shifted, which npu_geglu leaves out",
           "门控中有 clamp、系数或偏置，npu_geglu 不计算它们", "op-plugin docs npu_geglu"),
    Ruling("clamp_or_bias_in_gate", ("npu_swiglu",), "no",
           "the gate is clamped, scaled or shifted, which npu_swiglu leaves out; npu_clipped_swiglu is the op to look at",
           "门控中有 clamp、系数或偏置，npu_swiglu 不计算它们；应查看 npu_clipped_swiglu", "op-plugin docs npu_clipped_swiglu"),
    Ruling("sinks", (), "defer", "attention sinks need the op's sink argument, which is not proved here",
           "attention sink 需要该算子的 sink 参数，此处未做验证", "op-plugin docs npu_fusion_attention"),
    Ruling("alibi", (), "defer",
           "ALiBi is a pse with a pse_type of its own, which only npu_fusion_attention_v2 and later take",
           "ALiBi 需以 pse 及其专用 pse_type 传入，只有 npu_fusion_attention_v2 及以后版本支持",
           "op-plugin docs npu_fusion_attention_v2"),
    Ruling("relative_position_bias", (), "defer",
           "the position bias has to be passed as pse, divided by the scale, in full size",
           "位置偏置需除以 scale 后以完整形状作为 pse 传入", "op-plugin docs npu_fusion_attention"),
    Ruling("eps_inside_or_outside", (), "defer",
           "eps does not enter as in the op, which adds it to the mean square under the root",
           "eps 的加法位置与算子不同（算子在根号内加到均方上）", "op-plugin docs npu_rms_norm"),
    Ruling("rope_2d", (), "defer",
           "several position axes share the head dimension: cos and sin have to be assembled before the op",
           "多个位置轴共用 head 维：需先拼好 cos/sin 再调用算子", "op-plugin docs npu_rotary_mul"),
    Ruling("", ("npu_add_rms_norm",), "defer",
           "it overlaps with npu_rms_norm in the norm itself and has no backward: take it for inference, after the norm",
           "与 norm 本身的 npu_rms_norm 替换重叠且无反向：在 norm 替换之后、仅推理时再做", "op-plugin docs npu_add_rms_norm"),
    Ruling("", ("npu_scaled_masked_softmax",), "defer",
           "the last two dimensions have to be multiples of 32 up to 4096, and masked scores become -10000: check the shapes",
           "算子要求末两维在 [32, 4096] 且为 32 的倍数，并以 -10000 填充：先核对形状", "op-plugin test_scaled_masked_softmax.py"),
    Ruling("", ("affinity_index_put", "affinity_where"), "defer",
           "worth it only where a profile shows the kernel among the hot ones",
           "仅当 profile 显示该 kernel 是热点时才值得做", "affinity ops"),
)  # fmt: skip

# A GELU that is one call is one kernel already; one that is written out is not.
GELU_CALL = Ruling(
    "",
    ("npu_gelu",),
    "defer",
    "a GELU call is one kernel on the NPU already: npu_gelu fixes the approximation (erf) and saves no kernel",
    "GELU 调用在 NPU 上已是单个 kernel：npu_gelu 只是固定近似方式（erf），不减少 kernel",
    "op-plugin docs npu_gelu",
)

# torch_npu runs scaled_dot_product_attention as npu_fusion_attention itself (facts of its dispatch table).
SDPA_CALL = Ruling(
    "",
    ("npu_fusion_attention",),
    "defer",
    "torch_npu runs scaled_dot_product_attention as npu_fusion_attention itself: call the op only for what SDPA cannot say",
    "torch_npu 本身就把 scaled_dot_product_attention 执行为 npu_fusion_attention：只有 SDPA 表达不了的才需直接调用算子",
    "torch_npu dispatch of aten::scaled_dot_product_attention: npu_fusion_attention_v3",
)

# Where the defaults of a configuration give head sizes outside of what the op takes.
HEAD_SIZES = Ruling(
    "head_sizes",
    ("npu_fusion_attention",),
    "defer",
    "by the configuration's defaults the head sizes are none that npu_fusion_attention takes",
    "按 configuration 默认值，head 维超出 npu_fusion_attention 的范围",
    "op-plugin docs npu_fusion_attention",
)

FOR: tuple[Ruling, ...] = (
    Ruling("", ("npu_rms_norm",), "yes", "the norm runs as several kernels that npu_rms_norm does in one",
           "norm 由多个 kernel 组成，npu_rms_norm 合为一个", "op-plugin docs npu_rms_norm"),
    Ruling("", ("npu_swiglu",), "yes", "activation and product are two kernels that npu_swiglu does in one",
           "激活与乘法是两个 kernel，npu_swiglu 合为一个", "op-plugin docs npu_swiglu"),
    Ruling("", ("npu_geglu",), "yes", "activation and product are two kernels that npu_geglu does in one",
           "激活与乘法是两个 kernel，npu_geglu 合为一个", "op-plugin docs npu_geglu"),
    Ruling("", ("npu_rotary_mul",), "yes", "slices, negation, concatenation, products and sum are one npu_rotary_mul",
           "切片、取负、拼接、乘加合为一个 npu_rotary_mul", "op-plugin docs npu_rotary_mul"),
    Ruling("", ("npu_fusion_attention",), "yes",
           "scores, mask, softmax and product become one kernel that never writes the scores to memory",
           "分数、mask、softmax、乘 V 合为一个 kernel，分数矩阵不写回显存", "op-plugin docs npu_fusion_attention"),
    Ruling("", ("npu_grouped_matmul",), "yes", "one small matmul per expert becomes one grouped matmul",
           "每个 expert 一次小 matmul，合为一次 grouped matmul", "op-plugin docs npu_grouped_matmul"),
    Ruling("", ("npu_gelu",), "yes", "the GELU is written out in several kernels that npu_gelu does in one",
           "手写 GELU 由多个 kernel 组成，npu_gelu 合为一个", "op-plugin docs npu_gelu"),
    Ruling("", ("NpuFusedAdamW",), "yes",
           "the step runs kernels per parameter, which the fused optimizer does on merged tensors",
           "优化器逐参数启动 kernel，融合优化器在合并后的张量上一次完成", "torch_npu optim"),
)  # fmt: skip
