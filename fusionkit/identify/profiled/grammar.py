"""Which kernels in which order a fused op does: one literal table over classes of kernel types."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

# Word of a grammar -> kernel types without their versions (see profile.families.stem).
CLASSES: dict[str, tuple[str, ...]] = {
    "CAST": ("Cast",),
    "SQUARE": ("Pow", "Pows", "Square", "Mul"),
    "MEAN": ("ReduceMean",),
    "ADD": ("Add", "Adds"),
    "ROOT": ("Rsqrt",),
    "SQRT": ("Sqrt",),
    "DIVIDE": ("RealDiv", "Div", "Reciprocal"),
    "MUL": ("Mul", "Muls"),
    "NORM": ("RmsNorm",),
    "SILU": ("Swish", "Silu"),
    "SIGMOID": ("Sigmoid",),
    "GELU": ("Gelu", "FastGelu"),
    "MATMUL": ("MatMul", "BatchMatMul"),
    "NEG": ("Neg",),
    "SLICE": ("Slice", "StridedSlice", "Split", "SplitV", "AsStrided", "TensorMove", "Transpose", "ViewCopy"),
    "CONCAT": ("Concat", "Pack"),
    "MASK": ("MaskedFill", "Select", "Add", "Adds", "BroadcastTo"),
    "SOFTMAX": ("Softmax", "ScaledMaskedSoftmax"),
    "DROP": ("DropOutDoMask", "DSAStatelessGenBitMask", "DSAGenBitMask"),
    "GATHER": ("Index", "Gather", "GatherElements"),
    "SCATTER": ("InplaceIndexAdd", "IndexAdd", "InplaceIndexAddWithSorted", "ScatterAdd", "ScatterElements", "IndexPut"),
    "INDEX_PUT": ("IndexPut", "LinearIndex", "IndexPutWithSort"),
    "SELECT": ("Select", "Where"),
    "ADDCMUL": ("Addcmul",),
    "ADDCDIV": ("Addcdiv",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Grammar:
    """One row: words of CLASSES, each with ?, *, + or {m,n} behind it, groups in parentheses, | between choices."""

    op: str
    words: str
    source: str


# An earlier row takes its kernels before a later one looks.
GRAMMARS: tuple[Grammar, ...] = (
    Grammar("npu_fusion_attention",
            "MATMUL (CAST|MUL|DIVIDE|MASK|SLICE|DROP){0,6} SOFTMAX (CAST|DROP|SLICE){0,4} MATMUL",
            "matmul, scale, mask, softmax, dropout, matmul as torch runs them"),
    Grammar("npu_grouped_matmul", "GATHER (SLICE|CAST)* MATMUL (SLICE|CAST|SILU|GELU|MUL|MATMUL|GATHER){0,8} SCATTER",
            "one turn of an expert loop: gather tokens, products, scatter-add"),
    Grammar("npu_add_rms_norm", "ADD CAST? SQUARE MEAN ADD? (ROOT|SQRT DIVIDE) MUL CAST? MUL? CAST?",
            "residual addition before the chain of npu_rms_norm"),
    Grammar("npu_add_rms_norm", "ADD CAST? NORM", "CANN ops-nn norm/add_rms_norm"),
    Grammar("npu_rms_norm", "CAST? SQUARE MEAN ADD? (ROOT|SQRT DIVIDE) MUL? CAST? MUL? CAST?",
            "aclnnPowTensorScalar, aclnnMean, Rsqrt, Mul in kernel_details"),
    Grammar("npu_rotary_mul", "MUL? SLICE* NEG SLICE* CONCAT MUL ADD?", "rotate_half: slices, Neg, ConcatD, Mul, Add"),
    Grammar("npu_swiglu", "SILU (SLICE|CAST){0,2} MATMUL? MUL", "aclnnSilu (Type Swish), Mul in kernel_details"),
    Grammar("npu_swiglu", "SIGMOID MUL MUL", "silu written out"),
    Grammar("npu_geglu", "GELU (SLICE|CAST){0,2} MATMUL? MUL", "Gelu, Mul in kernel_details"),
    Grammar("npu_scaled_masked_softmax", "MUL? MASK SOFTMAX", "scale, MaskedFill, SoftmaxV2"),
    Grammar("NpuFusedAdamW", "ADDCMUL (SQRT|DIVIDE|ADD|MUL|ROOT){0,5} ADDCDIV", "one parameter of torch's Adam step"),
    Grammar("affinity_index_put", "INDEX_PUT", "affinity ops"),
    Grammar("affinity_where", "SELECT", "affinity ops"),
)  # fmt: skip


@cache
def expression(words: str) -> re.Pattern[str]:
    """The regular expression of a grammar over kernel types, each followed by one space.

    Raises KeyError for a word that is not in CLASSES.
    """
    turned = re.sub(r"[A-Z_]+", lambda word: f"(?:(?:{'|'.join(CLASSES[word[0]])}) )", words)
    return re.compile(r"(?<!\S)" + re.sub(r"(?<=[)?*+|}]) +(?=\(|$)", "", turned))
