"""Kernel names and types: grammar of names, families of types, kernels of fused ops.

Names follow `aclnn<API>_<L0 function>_<OpType>` (sometimes without the middle part); kernels that come from a
graph engine are named by node (`Conv2D17`, `trans_Cast_19`, `NonZero12_MemSet`); user kernels have arbitrary
names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from fusionkit.fusion_rows import FusedOp
from fusionkit.fusions import FUSIONS, sharing
from fusionkit.profile.kernel_records import CPU_CORE, KernelRecord

Family = Literal[
    "norm",
    "rotary",
    "activation",
    "attention",
    "matmul",
    "copy",
    "cast",
    "elementwise",
    "reduction",
    "communication",
    "other",
]

_API_NAME = re.compile(r"(?:aclnn|Inner)[A-Za-z0-9]+(?:_\w+)?_(?P<type>[A-Za-z][A-Za-z0-9]*)")
_NODE_PART = re.compile(r"[A-Z][A-Za-z0-9]*\d+_(?P<type>[A-Z][A-Za-z0-9]*)")
_NODE_INDEX = re.compile(r"(V\d)\d*$|\d+$")  # LpNormReduceV2158 is node 158 of LpNormReduceV2
_COMMUNICATION_CORES = frozenset({"HCCL", "COMMUNICATION"})


def op_type_of_name(name: str) -> str:
    """Operator type derived from a kernel name: `aclnnMul_MulAiCore_Mul` -> Mul, `trans_Cast_19` -> Cast.

    A name outside the grammar is its own type, without the index that the graph engine appends.
    """
    bare = name.rsplit("/", 1)[-1]
    if bare.startswith("hcom_"):
        return re.sub(r"__\d.*$", "_", bare)
    if bare.startswith("atomic_memset"):
        return "MemSet"
    if match := _API_NAME.fullmatch(bare) or _NODE_PART.fullmatch(bare):
        return match["type"]
    bare = re.sub(r"(_\d+)+$", "", bare).removeprefix("trans_")
    return _NODE_INDEX.sub(r"\1", bare) if bare[:1].isupper() else bare


def launch_name(record: KernelRecord) -> str:
    """Name shared by all launches of one kernel by one API: full aclnn name, or node name without index."""
    if record.core == CPU_CORE or _API_NAME.fullmatch(record.name):
        return record.name
    return op_type_of_name(record.name)


STEMS: dict[str, str] = {
    **{old: op.kernel_types[0] for row in FUSIONS for op in row.ops for old in op.older_types},
    "ConcatD": "Concat",
    "SplitD": "Split",
    "SplitVD": "SplitV",
    "StridedSliceD": "StridedSlice",
    "SliceD": "Slice",
    "TransposeD": "Transpose",
    "BroadcastToD": "BroadcastTo",
    "ReduceSumD": "ReduceSum",
    "ReduceMeanD": "ReduceMean",
}
"""Older names of operator types; suffix `D`: attributes compiled in (CANN operator list)."""


def stem(op_type: str) -> str:
    """Type without its version: MatMulV3 -> MatMul, StridedSliceD -> StridedSlice; Grad is kept."""
    plain = re.sub(r"V\d+$", "", op_type)
    return STEMS.get(op_type, STEMS.get(plain, plain))


@dataclass(frozen=True, slots=True)
class FamilyRule:
    """Blank-separated stems (with `*`) of a family; the first rule that fits applies."""

    family: Family
    stems: str
    source: str


FAMILY_RULES: tuple[FamilyRule, ...] = (
    FamilyRule("communication", "hcom_* Hcom* all[gG]ather* all[rR]educe*", "CANN HCCL task names"),
    FamilyRule("rotary", "*Rotary* *Rope*", "CANN ops-transformer posembedding/"),
    FamilyRule(
        "reduction",
        "Reduce* LpNorm* Softmax* LogSoftmax* ArgMax* ArgMin* Cumsum* Cumprod*",
        "CANN ops-math math/, ops-nn activation/",
    ),
    FamilyRule("norm", "*Norm*", "CANN ops-nn norm/; MindIE-SD layernorm_scale_shift"),
    FamilyRule("attention", "*Attention* *MaskedSoftmax*", "CANN ops-transformer attention/"),
    FamilyRule(
        "activation",
        "*Gelu* *GeGlu* *SwiGlu* Swish* Silu* *Relu* Elu* Sigmoid* Tanh* Softplus* Softsign* Mish* Hard*",
        "CANN ops-nn activation/",
    ),
    FamilyRule("matmul", "*MatMul* *Matmul* *Gemm*", "CANN ops-nn matmul/"),
    FamilyRule(
        "matmul", "*Conv[123]D* *Conv[123]d* *Convolution*", "CANN ops-nn conv/: the cube unit's other work"
    ),
    FamilyRule("cast", "Cast", "CANN ops-math math/cast"),
    FamilyRule(
        "copy",
        "ViewCopy TensorMove StridedSlice Slice AsStrided Transpose TransData Concat Split SplitV Pack Unpack"
        " BroadcastTo Expand Tile Identity MemcpyAsync",
        "CANN ops-math conversion/",
    ),
    FamilyRule(
        "elementwise",
        "Add Adds Sub Subs Mul Muls Div Divs RealDiv FloorDiv Pow Pows Addcmul Addcdiv Axpy Lerp Foreach*",
        "CANN ops-math math/",
    ),
    FamilyRule(
        "elementwise",
        "Abs Neg Sign Square Sqrt Rsqrt Reciprocal Exp Expm1 Log Log1p Cos Sin Erf Ceil Floor Round Trunc"
        " Max Maxs Min Mins Maximum Minimum ClipByValue",
        "CANN ops-math math/",
    ),
    FamilyRule(
        "elementwise",
        "Logical* Bitwise* Greater GreaterEqual Less LessEqual Equal NotEqual Select Where MaskedFill IsNan"
        " IsFinite",
        "CANN ops-math math/",
    ),
)


def family_of(op_type: str, core: str = "") -> Family:
    """Family of an operator type, with its gradient in the same one; "other" when no rule fits."""
    if core in _COMMUNICATION_CORES:
        return "communication"
    base = stem(re.sub(r"Grad(V\d+)?$", "", op_type))
    for rule in FAMILY_RULES:
        if any(fnmatchcase(base, pattern) for pattern in rule.stems.split()):
            return rule.family
    return "other"


def fused_ops(kernel: str) -> tuple[FusedOp, ...]:
    """The fused ops in the table of fusions for a fusion name, an op name (with or without namespace), or a kernel type.

    For a fusion name also the ops of the fusions that share an op with it, since their launches look the same.
    """
    wanted = kernel.casefold()
    names = sharing(wanted)
    return tuple(
        op
        for row in FUSIONS
        for op in row.ops
        if row.name in names
        or wanted in {op.name, op.name.split("::")[1], *(kind.casefold() for kind in op.every_type)}
    )


def is_kernel(record: KernelRecord, kernel: str) -> bool:
    """Whether a record is a launch of `kernel`: a name as in `fused_ops`, else a literal type or name.

    CPU records are identified by op name, never by type: `aten::gelu` is not `npu::npu_gelu`. Gradient kernels
    (`RmsNormGrad`) are different kernels.
    """
    ops = fused_ops(kernel)
    if record.core == CPU_CORE:
        names = {op.name for op in ops} or {kernel}
        return record.name in names or (not ops and record.type == kernel)
    types = {kind.casefold() for op in ops for kind in op.every_type} or {kernel.casefold()}
    return record.type.casefold() in types or (not ops and record.name == kernel)
