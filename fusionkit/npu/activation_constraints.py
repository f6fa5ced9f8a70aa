"""Constraints of the activations and the masked softmax on Atlas A2 and A3."""

from __future__ import annotations

import torch

from fusionkit.npu.constraint_checks import (
    FLOATS,
    Row,
    Sizes,
    broadcasts_to,
    cited,
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
    shapes,
)

_SWIGLU = "op-plugin docs npu_swiglu"
_SOFTMAX = "op-plugin docs npu_scaled_masked_softmax"
_ACL_SOFTMAX = "ops-nn docs aclnnScaledMaskedSoftmax"

_APPROXIMATE = one_of("approximate", "none", "tanh")
_FORM_NUMBER = one_of("approximate", 0, 1, text="must be 0 (erf) or 1 (tanh)")
_FLOAT_INPUT = dtype_in("input", *FLOATS)
_RANK_TO_8 = rank_between("input", 0, 8)
_RANK_1_TO_8 = rank_between("input", 1, 8)
_HALVES = (dim_in_range("dim", "input"), even_size("input", "dim"))
_HALVED_GRADIENT = halved_shape("grad_output", "input", "dim")
_BOOL_MASK = dtype_in("mask", torch.bool)
_NO_FIXED_MASK = one_of("fixed_triu_mask", False)


def _blocks_of_32(shape: Sizes) -> bool:
    return len(shape) < 2 or all(
        size is None or (32 <= size <= 4096 and size % 32 == 0) for size in shape[-2:]
    )


ACTIVATION_ROWS: dict[str, tuple[Row, ...]] = {
    "npu_swiglu": (
        *cited(_SWIGLU, _FLOAT_INPUT, _RANK_1_TO_8, *_HALVES),
        *cited("ops-nn docs aclnnSwiGlu", contiguous("input")),
        *cited(_SWIGLU, not_empty("input")),
    ),
    "npu_swiglu_backward": cited(
        "ops-nn docs aclnnSwiGluGrad", *_HALVES, _HALVED_GRADIENT, same_dtype("grad_output", "input")
    ),
    "npu_gelu": cited("op-plugin docs npu_gelu", present("input"), _FLOAT_INPUT, _RANK_TO_8, _APPROXIMATE),
    "npu_gelu_backward": (
        *cited("ops-nn docs aclnnGeluBackwardV2", _FLOAT_INPUT),
        *cited("torch_npu 2.13 meta kernel of npu_gelu_backward", same_shape("grad_output", "input")),
        *cited("ops-nn docs aclnnGeluBackwardV2", _APPROXIMATE),
    ),
    "npu_fast_gelu": cited("op-plugin docs npu_fast_gelu", present("input"), _FLOAT_INPUT, _RANK_TO_8),
    "npu_fast_gelu_backward": cited(
        "ops-nn docs aclnnFastGeluBackward",
        _FLOAT_INPUT,
        same_shape("grad", "input"),
        same_dtype("grad", "input"),
    ),
    "npu_geglu": cited("ops-nn docs aclnnGeGluV3", _FLOAT_INPUT, _RANK_1_TO_8, *_HALVES, _FORM_NUMBER),
    "npu_geglu_grad": cited(
        "ops-nn docs aclnnGeGluV3Backward",
        _FLOAT_INPUT,
        *_HALVES,
        _HALVED_GRADIENT,
        same_shape("gelu", "grad_output"),
        same_dtype("gelu", "input"),
        _FORM_NUMBER,
    ),
    "npu_scaled_masked_softmax": (
        *cited(_SOFTMAX, dtype_in("x", *FLOATS)),
        *cited(_ACL_SOFTMAX, rank_between("x", 4, 4)),
        *cited(
            _SOFTMAX,
            shapes("must have last two sizes of 32 to 4096, each a multiple of 32", _blocks_of_32, "x"),
            _BOOL_MASK,
            broadcasts_to("mask", "x"),
            _NO_FIXED_MASK,
        ),
    ),
    "npu_scaled_masked_softmax_backward": cited(
        f"{_ACL_SOFTMAX}Backward",
        dtype_in("y", *FLOATS),
        same_shape("y_grad", "y"),
        same_dtype("y_grad", "y"),
        _BOOL_MASK,
        _NO_FIXED_MASK,
    ),
}
