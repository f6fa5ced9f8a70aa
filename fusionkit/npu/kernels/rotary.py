"""npu_rotary_mul: input * r1 + rotated(input) * r2. Formulas: op-plugin docs npu_rotary_mul."""

from __future__ import annotations

from typing import Any

import torch

from fusionkit.errors import MisuseError
from fusionkit.npu.kernels.op_kernel import Autograd, OpKernel, written_like

Tensor = torch.Tensor


def rotated(x: Tensor, rotary_mode: str) -> Tensor:
    """half: cat(-x[D/2:], x[:D/2]); interleave: each pair of neighbours (a, b) becomes (-b, a)."""
    if rotary_mode == "half":
        first, second = x.chunk(2, -1)
        return torch.cat((-second, first), -1)
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


def rotary_mul(input: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str, rotate: Tensor | None) -> Tensor:
    """input * r1 + rotated(input) * r2, contiguous, in input's dtype and shape.

    r1 and r2 (cos and sin, of full width D) are first rounded to input's dtype, as op-plugin does for differing
    dtypes; then float32, and one rounding to input's dtype. With `rotate`, a [D, D] matrix,
    rotated(input) is input @ rotate whatever the mode.
    """
    x = input.float()
    turned = rotated(x, rotary_mode) if rotate is None else x @ rotate.float()
    cos, sin = r1.to(input.dtype).float(), r2.to(input.dtype).float()
    return (x * cos + turned * sin).to(input.dtype).contiguous()


def _fake_rotary_mul(input: Tensor, **_: Any) -> Tensor:
    return input.new_empty(input.shape)


def rotary_mul_backward(
    grad: Tensor, input: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str
) -> tuple[Tensor, Tensor, Tensor]:
    """(dx, dr1, dr2), all in input's dtype; grad, r1 and r2 are rounded to it first.

    The rotation's transpose is its negative, in both modes.
    """
    dtype = input.dtype
    x, upstream = input.float(), grad.to(dtype).float()
    cos, sin = r1.to(dtype).float(), r2.to(dtype).float()
    dx = upstream * cos - rotated(upstream * sin, rotary_mode)
    dr1 = (upstream * x).sum_to_size(r1.shape)
    dr2 = (upstream * rotated(x, rotary_mode)).sum_to_size(r2.shape)
    return written_like(input, dx, dtype), written_like(r1, dr1, dtype), written_like(r2, dr2, dtype)


def _fake_rotary_mul_backward(input: Tensor, r1: Tensor, r2: Tensor, **_: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(tensor, dtype=input.dtype) for tensor in (input, r1, r2))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    x, r1, r2, ctx.rotary_mode, rotate = inputs
    ctx.has_rotate = rotate is not None
    ctx.save_for_backward(x, r1, r2)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    if ctx.has_rotate:
        raise MisuseError(
            "npu_rotary_mul: rotate has no backward; use rotary_mode without rotate for training"
        )
    grads = torch.ops.npu.npu_rotary_mul_backward(grad, *ctx.saved_tensors, ctx.rotary_mode)
    return (*grads, None, None)


KERNELS = (
    OpKernel("npu_rotary_mul", rotary_mul, _fake_rotary_mul, Autograd(_save, _backward)),
    OpKernel("npu_rotary_mul_backward", rotary_mul_backward, _fake_rotary_mul_backward),
)
