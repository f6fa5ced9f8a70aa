"""What a fusion can bring on an NPU: ceilings and facts, never a time of another machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fusionkit.identify.reporting.words import Lang

Bound = Literal["memory", "compute", "launch", "none"]


@dataclass(frozen=True, slots=True)
class Benefit:
    """One row: the kernels of the written code and of the op, and what bounds the gain."""

    op: str
    bound: Bound
    before: str
    after: str
    source: str


CEILINGS: dict[Bound, tuple[str, str]] = {
    "memory": (
        "memory-bound: at most about 2x on these kernels, for each intermediate that is no longer written and read",
        "访存瓶颈：这些 kernel 上最多约 2x，来自不再写回又读出的中间结果",
    ),
    "compute": (
        "the matrix products are compute-bound (aic_mac_ratio near 1) and do not shrink; the gain is in what lies between"
        " them and in memory",
        "矩阵乘属计算瓶颈（aic_mac_ratio 接近 1），不会变快；收益在两次乘法之间的部分与显存占用",
    ),
    "launch": (
        "launch-bound where the kernels are tiny with gaps between them: a medium gain",
        "kernel 很小且有间隙时属 launch 瓶颈：收益中等",
    ),
    "none": (
        "no kernel fewer: what changes is accuracy or a fixed approximation",
        "kernel 数不减少：改变的只是精度或固定的近似方式",
    ),
}

BENEFITS: tuple[Benefit, ...] = (
    Benefit("npu_rms_norm", "memory", "Pows, ReduceMean, Adds, Rsqrt, Mul, Mul (Cast)", "RmsNorm", "kernel_details of torch_npu"),
    Benefit("npu_add_rms_norm", "memory", "Add, RmsNorm", "AddRmsNorm", "CANN ops-nn norm/add_rms_norm"),
    Benefit("npu_swiglu", "memory", "Swish, Mul", "SwiGlu", "kernel_details of torch_npu"),
    Benefit("npu_geglu", "memory", "Gelu, Mul", "GeGluV2", "CANN ops-nn activation/ge_glu_v2"),
    Benefit("npu_rotary_mul", "memory", "Slice, Slice, Neg, ConcatD, Mul, Mul, Add", "RotaryPositionEmbedding",
            "kernel_details of torch_npu"),
    Benefit("npu_fusion_attention", "compute", "BatchMatMul, Muls, Add, SoftmaxV2, BatchMatMul", "FlashAttentionScore",
            "CANN ops-transformer attention/flash_attention_score"),
    Benefit("npu_grouped_matmul", "launch", "Index, MatMul, MatMul, InplaceIndexAdd per expert", "GroupedMatmul",
            "CANN ops-transformer gmm/grouped_matmul"),
    Benefit("npu_gelu", "none", "Gelu", "GeluV2", "op-plugin npu_gelu: aclnnGeluV2"),
    Benefit("npu_scaled_masked_softmax", "memory", "Muls, MaskedFill, SoftmaxV2", "ScaledMaskedSoftmax",
            "op-plugin npu_scaled_masked_softmax"),
    Benefit("affinity_index_put", "memory", "IndexPut", "Mul", "affinity ops"),
    Benefit("affinity_where", "memory", "SelectV2", "Lerp", "affinity ops"),
    Benefit("NpuFusedAdamW", "launch", "Mul, Addcmul, Sqrt, Addcdiv per parameter", "the same on merged tensors",
            "torch_npu optim"),
)  # fmt: skip


def benefit(op: str) -> Benefit:
    """The row of an op. Raises KeyError for a name that has none."""
    return {row.op: row for row in BENEFITS}[op]


def ceiling(lang: Lang, bound: Bound) -> str:
    """What a bound means for the gain."""
    return CEILINGS[bound][lang == "zh"]
