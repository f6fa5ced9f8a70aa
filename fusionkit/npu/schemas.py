"""Operator schemas: torch_npu's own, as registered by its library, and those of the kit's ops."""

from __future__ import annotations

import functools
from typing import Any

import torch

from fusionkit.errors import MisuseError

# Schema strings of torch_npu 2.13.0, as its shared library libtorch_npu.so registers them with the dispatcher
# (they are plain strings in it). The code generation table csrc/aten/npu_native_functions_by_codegen.yaml of
# the wheel calls the first argument `self`; the registered name is `input`, and that is what a caller sees.
SCHEMAS: dict[str, str] = {
    "npu_rms_norm": "npu_rms_norm(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)",
    "npu_rms_norm_backward": (
        "npu_rms_norm_backward(Tensor dy, Tensor input, Tensor gamma, Tensor rstd) -> (Tensor, Tensor)"
    ),
    "npu_add_rms_norm": (
        "npu_add_rms_norm(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06)"
        " -> (Tensor, Tensor, Tensor)"
    ),
    "npu_rotary_mul": (
        "npu_rotary_mul(Tensor input, Tensor r1, Tensor r2, str rotary_mode='half', Tensor? rotate=None)"
        " -> Tensor"
    ),
    "npu_rotary_mul_backward": (
        "npu_rotary_mul_backward(Tensor grad, Tensor input, Tensor r1, Tensor r2, str rotary_mode='half')"
        " -> (Tensor, Tensor, Tensor)"
    ),
    "npu_swiglu": "npu_swiglu(Tensor input, int dim=-1) -> Tensor",
    "npu_swiglu_backward": "npu_swiglu_backward(Tensor grad_output, Tensor input, int dim=-1) -> Tensor",
    "npu_gelu": "npu_gelu(Tensor input, *, str approximate='none') -> Tensor",
    "npu_gelu_backward": (
        "npu_gelu_backward(Tensor grad_output, Tensor input, *, str approximate='none') -> Tensor"
    ),
    "npu_fast_gelu": "npu_fast_gelu(Tensor input) -> Tensor",
    "npu_fast_gelu_backward": "npu_fast_gelu_backward(Tensor grad, Tensor input) -> Tensor",
    "_npu_dtype_cast": "_npu_dtype_cast(Tensor input, ScalarType dtype) -> Tensor",
    "_npu_dtype_cast_backward": "_npu_dtype_cast_backward(Tensor grad, ScalarType dtype) -> Tensor",
}

# Ops of the kit's own, in the namespace `fusionkit`, for fusions that torch_npu has no op for.
KIT_SCHEMAS: dict[str, str] = {
    "layer_norm_scale_shift": (
        "layer_norm_scale_shift(Tensor x, Tensor scale, Tensor shift, float eps=1e-06) -> Tensor"
    ),
}


@functools.cache
def parsed_schema(op: str) -> Any:
    """The `torch.FunctionSchema` of op, a key of SCHEMAS or KIT_SCHEMAS; KeyError for any other name."""
    if op in SCHEMAS:
        return torch._C.parse_schema(f"npu::{SCHEMAS[op]}")
    return torch._C.parse_schema(f"fusionkit::{KIT_SCHEMAS[op]}")


def bind(op: str, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Argument name -> value of a call of op, defaults filled in from the schema.

    Raises MisuseError naming op and argument when the call does not fit the schema.
    """
    arguments = parsed_schema(op).arguments
    positional = [argument.name for argument in arguments if not argument.kwarg_only]
    if len(args) > len(positional):
        raise MisuseError(f"{op}: takes {len(positional)} positional arguments, got {len(args)}")
    given = dict(zip(positional, args, strict=False))
    for name, value in kwargs.items():
        if name in given or name not in {argument.name for argument in arguments}:
            problem = "given twice" if name in given else f"unknown; the schema is {parsed_schema(op)}"
            raise MisuseError(f"{op}: argument {name} is {problem}")
        given[name] = value
    bound: dict[str, Any] = {}
    for argument in arguments:
        if argument.name not in given and not argument.has_default_value():
            raise MisuseError(f"{op}: argument {argument.name} is missing; the schema is {parsed_schema(op)}")
        bound[argument.name] = given.get(argument.name, argument.default_value)
    return bound
