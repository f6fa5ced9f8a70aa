"""NPU operator types of torch ops, and the profiler's names of torch dtypes.

The types are those of torch_npu's kernels in kernel_details.csv, so that CPU and NPU profiles are read by the same
code. An op outside the table gets its own name in capitals: aten::softplus -> Softplus.
"""

from __future__ import annotations

import torch

_OPS_NN = "CANN ops-nn"
_OPS_MATH = "CANN ops-math"
_OPS_TRANSFORMER = "CANN ops-transformer"
_KIT = "fusionkit's own op, the kernel is MindIE-SD's"

CPU_OP_TYPES: tuple[tuple[str, str, str], ...] = (
    ("npu::npu_rms_norm", "RmsNorm", _OPS_NN),
    ("npu::npu_add_rms_norm", "AddRmsNorm", _OPS_NN),
    ("npu::npu_rotary_mul", "RotaryPositionEmbedding", _OPS_TRANSFORMER),
    ("npu::npu_swiglu", "SwiGlu", _OPS_NN),
    ("npu::npu_geglu", "GeGluV2", _OPS_NN),
    ("npu::npu_gelu", "Gelu", _OPS_NN),
    ("npu::npu_fast_gelu", "FastGelu", _OPS_NN),
    ("npu::npu_fusion_attention", "FlashAttentionScore", _OPS_TRANSFORMER),
    ("npu::npu_grouped_matmul", "GroupedMatmul", _OPS_TRANSFORMER),
    ("npu::npu_scaled_masked_softmax", "ScaledMaskedSoftmax", "op-plugin"),
    ("npu::_npu_dtype_cast", "Cast", _OPS_MATH),
    ("npu::npu_dtype_cast", "Cast", _OPS_MATH),
    ("fusionkit::layer_norm_scale_shift", "AdaLayerNorm", _KIT),
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

_TYPES = {op: kind for op, kind, _ in CPU_OP_TYPES}

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


def has_cpu_type(op: str) -> bool:
    """Whether an op (`aten::add_`) is in the table, and therefore counted as one kernel."""
    return op.rstrip("_") in _TYPES


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
