"""Which torch ops run a kernel on a CPU (by the dispatcher and the schemas), and the NPU's types of these kernels.

The types are those of torch_npu's kernels in kernel_details.csv, so that CPU and NPU profiles are read by the same
code. An op outside the table gets its own name in capitals: aten::softplus -> Softplus.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

from fusionkit.fusions import FUSIONS

Role = Literal["kernel", "leaf", "transparent"]
"""kernel: one row, inner ops hidden. leaf: a row if no inner op is one. transparent: never a row."""

NO_KERNEL: frozenset[str] = frozenset(
    (
        *("empty", "empty_like", "empty_strided", "empty_permuted", "empty_quantized", "empty_meta"),
        *("new_empty", "new_empty_strided", "resize_", "resize_as_", "set_", "_efficientzerotensor"),
        *("squeeze_", "unsqueeze_", "t_", "transpose_", "as_strided_", "detach_", "swapaxes_", "swapdims_"),
        *("item", "_local_scalar_dense", "is_nonzero", "result_type", "is_same_size", "is_pinned"),
        *("_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "_lazy_clone", "lift"),
        *("_assert_scalar", "_assert_tensor_metadata", "_functional_assert_scalar", "_print"),
        *("sym_constrain_range", "sym_constrain_range_for_size"),
        *("_functional_sym_constrain_range", "_functional_sym_constrain_range_for_size"),
    )
)
"""aten ops that allocate, change metadata, assert or read one value; views are recognised by their schemas."""

_SILENT_NAMESPACES = frozenset({"profiler"})
_WORKING_KEYS = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")

_OPS_NN = "CANN ops-nn"
_OPS_MATH = "CANN ops-math"
_OPS_TRANSFORMER = "CANN ops-transformer"

CPU_OP_TYPES: tuple[tuple[str, str, str], ...] = (
    *((op.name, op.kernel_types[0], op.source) for row in FUSIONS for op in row.ops),
    ("npu::_npu_dtype_cast", "Cast", _OPS_MATH),
    ("npu::npu_dtype_cast", "Cast", _OPS_MATH),
    ("aten::pow", "Pows", _OPS_MATH),
    ("aten::square", "Square", _OPS_MATH),
    ("aten::mean", "ReduceMean", _OPS_MATH),
    ("aten::sum", "ReduceSum", _OPS_MATH),
    ("aten::amax", "ReduceMax", _OPS_MATH),
    ("aten::amin", "ReduceMin", _OPS_MATH),
    ("aten::var", "ReduceVar", _OPS_MATH),
    ("aten::linalg_vector_norm", "LpNormV2", _OPS_MATH),
    ("aten::rsqrt", "Rsqrt", _OPS_MATH),
    ("aten::sqrt", "Sqrt", _OPS_MATH),
    ("aten::mul", "Mul", _OPS_MATH),
    ("aten::add", "Add", _OPS_MATH),
    ("aten::sub", "Sub", _OPS_MATH),
    ("aten::rsub", "Sub", _OPS_MATH),
    ("aten::div", "RealDiv", _OPS_MATH),
    ("aten::neg", "Neg", _OPS_MATH),
    ("aten::exp", "Exp", _OPS_MATH),
    ("aten::cos", "Cos", _OPS_MATH),
    ("aten::sin", "Sin", _OPS_MATH),
    ("aten::reciprocal", "Reciprocal", _OPS_MATH),
    ("aten::clamp", "ClipByValueV2", _OPS_MATH),
    ("aten::where", "SelectV2", _OPS_MATH),
    ("aten::masked_fill", "MaskedFill", _OPS_MATH),
    ("aten::gt", "Greater", _OPS_MATH),
    ("aten::ge", "GreaterEqual", _OPS_MATH),
    ("aten::lt", "Less", _OPS_MATH),
    ("aten::le", "LessEqual", _OPS_MATH),
    ("aten::eq", "Equal", _OPS_MATH),
    ("aten::ne", "NotEqual", _OPS_MATH),
    ("aten::silu", "Swish", _OPS_NN),
    ("aten::gelu", "Gelu", _OPS_NN),
    ("aten::relu", "Relu", _OPS_NN),
    ("aten::sigmoid", "Sigmoid", _OPS_NN),
    ("aten::tanh", "Tanh", _OPS_NN),
    ("aten::_softmax", "SoftmaxV2", _OPS_NN),
    ("aten::_log_softmax", "LogSoftmaxV2", _OPS_NN),
    ("aten::native_layer_norm", "LayerNormV4", _OPS_NN),
    ("aten::native_group_norm", "GroupNorm", _OPS_NN),
    ("aten::mm", "MatMulV2", _OPS_NN),
    ("aten::addmm", "MatMulV2", _OPS_NN),
    ("aten::bmm", "BatchMatMulV2", _OPS_NN),
    ("aten::baddbmm", "BatchMatMulV2", _OPS_NN),
    ("aten::_slow_conv2d_forward", "Conv2D", _OPS_NN),
    ("aten::slow_conv3d_forward", "Conv3D", _OPS_NN),
    ("aten::_scaled_dot_product_flash_attention_for_cpu", "FlashAttentionScore", _OPS_TRANSFORMER),
    ("aten::embedding", "GatherV2", _OPS_MATH),
    ("aten::index_select", "GatherV2", _OPS_MATH),
    ("aten::cat", "ConcatD", _OPS_MATH),
    ("aten::zero", "ZerosLike", _OPS_MATH),
    ("aten::fill", "Fill", _OPS_MATH),
    ("aten::arange", "Range", _OPS_MATH),
)
"""Op without its in-place underscore, NPU operator type, and where that operator is specified."""

_TYPES = {op: kind for op, kind, _ in reversed(CPU_OP_TYPES)}  # of an op in two rows, the first one's type

DTYPE_WORDS: dict[torch.dtype, str] = {
    torch.float32: "FLOAT",
    torch.float16: "FLOAT16",
    torch.bfloat16: "DT_BF16",
    torch.float64: "DOUBLE",
    torch.int64: "INT64",
    torch.int32: "INT32",
    torch.int16: "INT16",
    torch.int8: "INT8",
    torch.uint8: "UINT8",
    torch.bool: "BOOL",
    torch.complex64: "COMPLEX64",
    torch.complex128: "COMPLEX128",
}
"""Data types as kernel_details.csv writes them (CANN, ge::DataType)."""


def op_role(name: str, fused_namespaces: tuple[str, ...]) -> Role:
    """Role of the profiler event `name`; a name that is no `namespace::op` is a range, and transparent.

    The profiler reports no overload names, so all overloads of an aten op are considered. Kernel: the op is in the
    type table, or it has a CPU kernel in the dispatcher and no overload that only calls other ops. Leaf: some
    overloads call other ops (aten::repeat_interleave), or one implementation for all backends may compute itself.
    Transparent: all overloads call other ops, the schema returns a view of an input, or the op is in `NO_KERNEL`.
    """
    namespace, _, op = name.partition("::")
    if not namespace.isidentifier() or not op.isidentifier() or namespace in _SILENT_NAMESPACES:
        return "transparent"
    if namespace in fused_namespaces:
        return "kernel"
    if namespace != "aten":
        return "leaf"
    if op in NO_KERNEL:
        return "transparent"
    if name.rstrip("_") in _TYPES or name == "aten::copy_":
        return "kernel"
    return _aten_role(op)


def _aten_role(op: str) -> Role:
    packet: Any = getattr(torch.ops.aten, op, None)
    if not hasattr(packet, "overloads"):
        return "leaf"
    overloads: list[Any] = [
        overload
        for overload in (getattr(packet, name) for name in packet.overloads())
        if not any("Dimname" in str(argument.type) for argument in overload._schema.arguments)
    ]
    if any(_is_view(overload) for overload in overloads):
        return "transparent"
    on_cpu = [overload for overload in overloads if _has_kernel(overload, "CPU")]
    others = [overload for overload in overloads if overload not in on_cpu]
    if on_cpu and not any(_has_kernel(overload, "CompositeImplicitAutograd") for overload in others):
        return "kernel"
    if on_cpu or any(_has_kernel(overload, key) for overload in others for key in _WORKING_KEYS):
        return "leaf"
    return "transparent"


def _has_kernel(overload: Any, key: str) -> bool:
    """Whether the dispatcher has a kernel under `key`; it does not know overloads for TorchScript only."""
    name = overload.name()
    if not torch._C._dispatch_has_kernel(name):
        return False
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def _is_view(overload: Any) -> bool:
    """Whether the result aliases an input that is not written to."""
    return any(
        value.alias_info is not None and not value.alias_info.is_write for value in overload._schema.returns
    )


def cpu_op_type(op: str) -> str:
    """NPU operator type for a torch op other than aten::copy_ (see `copy_type`)."""
    plain = op.rstrip("_")
    if plain in _TYPES:
        return _TYPES[plain]
    words = plain.rsplit("::", 1)[-1].removeprefix("npu_").split("_")
    return "".join(word[:1].upper() + word[1:] for word in words) or plain


def copy_type(same_dtype: bool, contiguous: bool) -> str:
    """Type of an aten::copy_: Cast between dtypes, TensorMove between contiguous tensors, else ViewCopy."""
    if not same_dtype:
        return "Cast"
    return "TensorMove" if contiguous else "ViewCopy"


def dtype_word(dtype: torch.dtype | None) -> str:
    """Word for a dtype; one that is not in the table gets its torch name in capitals."""
    if dtype is None:
        return "UNDEFINED"
    return DTYPE_WORDS.get(dtype, str(dtype).removeprefix("torch.").upper())
