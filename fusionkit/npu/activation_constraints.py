"""Constraints of the activations and the masked softmax on Atlas A2 and A3."""

from __future__ import annotations

import torch

from fusionkit.npu.constraint_checks import (
    FLOATS,
    Row,
    broadcasts_to,
    contiguous,
    dim_in_range,
    dtype_in,
    even_size,
    halved_shape,
    not_empty,
    one_of,
    present,
    rank_between,
    same_dtype,
    same_shape,
    sizes_in,
)

_SWIGLU = "op-plugin docs npu_swiglu"
_ACL_SWIGLU = "ops-nn docs aclnnSwiGlu"
_ACL_SWIGLU_GRAD = "ops-nn docs aclnnSwiGluGrad"
_GELU = "op-plugin docs npu_gelu"
_ACL_GELU_GRAD = "ops-nn docs aclnnGeluBackwardV2"
_META_GELU_GRAD = "torch_npu 2.13 meta kernel of npu_gelu_backward"
_FAST_GELU = "op-plugin docs npu_fast_gelu"
_ACL_FAST_GELU_GRAD = "ops-nn docs aclnnFastGeluBackward"
_ACL_GEGLU = "ops-nn docs aclnnGeGluV3"
_ACL_GEGLU_GRAD = "ops-nn docs aclnnGeGluV3Backward"
_SOFTMAX = "op-plugin docs npu_scaled_masked_softmax"
_ACL_SOFTMAX = "ops-nn docs aclnnScaledMaskedSoftmax"
_ACL_SOFTMAX_GRAD = "ops-nn docs aclnnScaledMaskedSoftmaxBackward"
_APPROXIMATE = "must be 'none' or 'tanh'"
_FORM_NUMBER = "must be 0 (erf) or 1 (tanh)"
_EVEN = "must have an even size along dim"
_DIM = "must be in [-rank, rank - 1] of input"
_BOOL = "must be bool"
_BROADCAST_MASK = "must broadcast against x without enlarging it"

_FLOAT = "must be float16, bfloat16 or float32"
_TENSOR = "must be a tensor, never None"

ACTIVATION_ROWS: dict[str, tuple[Row, ...]] = {
    "npu_swiglu": (
        ("input", _FLOAT, _SWIGLU, dtype_in("input", FLOATS)),
        ("input", "must have 1 to 8 dimensions", _SWIGLU, rank_between("input", 1, 8)),
        ("dim", _DIM, _SWIGLU, dim_in_range("dim", "input")),
        ("input", _EVEN, _SWIGLU, even_size("input", "dim")),
        ("input", "must be contiguous", _ACL_SWIGLU, contiguous("input")),
        ("input", "must not be empty", _SWIGLU, not_empty("input")),
    ),
    "npu_swiglu_backward": (
        ("dim", _DIM, _ACL_SWIGLU_GRAD, dim_in_range("dim", "input")),
        ("input", _EVEN, _ACL_SWIGLU_GRAD, even_size("input", "dim")),
        (
            "grad_output",
            "must have the shape of input, halved along dim",
            _ACL_SWIGLU_GRAD,
            halved_shape("grad_output", "input", "dim"),
        ),
        ("grad_output", "must have the dtype of input", _ACL_SWIGLU_GRAD, same_dtype("grad_output", "input")),
    ),
    "npu_gelu": (
        ("input", _TENSOR, _GELU, present("input")),
        ("input", _FLOAT, _GELU, dtype_in("input", FLOATS)),
        ("input", "must have at most 8 dimensions", _GELU, rank_between("input", 0, 8)),
        ("approximate", _APPROXIMATE, _GELU, one_of("approximate", ("none", "tanh"))),
    ),
    "npu_gelu_backward": (
        ("input", _FLOAT, _ACL_GELU_GRAD, dtype_in("input", FLOATS)),
        ("grad_output", "must have the shape of input", _META_GELU_GRAD, same_shape("grad_output", "input")),
        ("approximate", _APPROXIMATE, _ACL_GELU_GRAD, one_of("approximate", ("none", "tanh"))),
    ),
    "npu_fast_gelu": (
        ("input", _TENSOR, _FAST_GELU, present("input")),
        ("input", _FLOAT, _FAST_GELU, dtype_in("input", FLOATS)),
        ("input", "must have at most 8 dimensions", _FAST_GELU, rank_between("input", 0, 8)),
    ),
    "npu_fast_gelu_backward": (
        ("input", _FLOAT, _ACL_FAST_GELU_GRAD, dtype_in("input", FLOATS)),
        ("grad", "must have the shape of input", _ACL_FAST_GELU_GRAD, same_shape("grad", "input")),
        ("grad", "must have the dtype of input", _ACL_FAST_GELU_GRAD, same_dtype("grad", "input")),
    ),
    "npu_geglu": (
        ("input", _FLOAT, _ACL_GEGLU, dtype_in("input", FLOATS)),
        ("input", "must have 1 to 8 dimensions", _ACL_GEGLU, rank_between("input", 1, 8)),
        ("dim", _DIM, _ACL_GEGLU, dim_in_range("dim", "input")),
        ("input", _EVEN, _ACL_GEGLU, even_size("input", "dim")),
        ("approximate", _FORM_NUMBER, _ACL_GEGLU, one_of("approximate", (0, 1))),
    ),
    "npu_geglu_grad": (
        ("input", _FLOAT, _ACL_GEGLU_GRAD, dtype_in("input", FLOATS)),
        ("dim", _DIM, _ACL_GEGLU_GRAD, dim_in_range("dim", "input")),
        ("input", _EVEN, _ACL_GEGLU_GRAD, even_size("input", "dim")),
        (
            "grad_output",
            "must have the shape of input, halved along dim",
            _ACL_GEGLU_GRAD,
            halved_shape("grad_output", "input", "dim"),
        ),
        ("gelu", "must have the shape of grad_output", _ACL_GEGLU_GRAD, same_shape("gelu", "grad_output")),
        ("gelu", "must have the dtype of input", _ACL_GEGLU_GRAD, same_dtype("gelu", "input")),
        ("approximate", _FORM_NUMBER, _ACL_GEGLU_GRAD, one_of("approximate", (0, 1))),
    ),
    "npu_scaled_masked_softmax": (
        ("x", _FLOAT, _SOFTMAX, dtype_in("x", FLOATS)),
        ("x", "must have 4 dimensions", _ACL_SOFTMAX, rank_between("x", 4, 4)),
        (
            "x",
            "must have last two sizes of 32 to 4096, each a multiple of 32",
            _SOFTMAX,
            sizes_in("x", 2, lambda size: 32 <= size <= 4096 and size % 32 == 0),
        ),
        ("mask", _BOOL, _SOFTMAX, dtype_in("mask", (torch.bool,))),
        ("mask", _BROADCAST_MASK, _SOFTMAX, broadcasts_to("mask", "x")),
        ("fixed_triu_mask", "must be False", _SOFTMAX, one_of("fixed_triu_mask", (False,))),
    ),
    "npu_scaled_masked_softmax_backward": (
        ("y", _FLOAT, _ACL_SOFTMAX_GRAD, dtype_in("y", FLOATS)),
        ("y_grad", "must have the shape of y", _ACL_SOFTMAX_GRAD, same_shape("y_grad", "y")),
        ("y_grad", "must have the dtype of y", _ACL_SOFTMAX_GRAD, same_dtype("y_grad", "y")),
        ("mask", _BOOL, _ACL_SOFTMAX_GRAD, dtype_in("mask", (torch.bool,))),
        ("fixed_triu_mask", "must be False", _ACL_SOFTMAX_GRAD, one_of("fixed_triu_mask", (False,))),
    ),
}
