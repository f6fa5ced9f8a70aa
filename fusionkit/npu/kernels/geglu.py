"""npu_geglu: a gate with GELU, on the RIGHT half by default. Formulas: ops-nn docs aclnnGeGluV3."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from fusionkit.npu.kernels.op_kernel import Autograd, OpKernel, fake_half, like, written_like

Tensor = torch.Tensor


def _halves(input: Tensor, dim: int, activate_left: bool) -> tuple[Tensor, Tensor]:
    """(gate, value) in float32: the half with GELU and the other one."""
    left, right = input.float().chunk(2, dim)
    return (left, right) if activate_left else (right, left)


def _form(approximate: int) -> str:
    return "tanh" if approximate else "none"


def geglu(input: Tensor, dim: int, approximate: int, activate_left: bool) -> tuple[Tensor, Tensor]:
    """(y, gelu): y = value * gelu(gate), with half of input's size along dim, contiguous, in its dtype.

    The gate is the RIGHT half of input, the left one with activate_left. approximate 0 is the erf form, 1
    (the default) the tanh form. float32 inside; each output is rounded once.
    """
    gate, value = _halves(input, dim, activate_left)
    activated = functional.gelu(gate, approximate=_form(approximate))
    return (value * activated).to(input.dtype).contiguous(), activated.to(input.dtype).contiguous()


def _fake_geglu(input: Tensor, dim: int, **_: Any) -> tuple[Tensor, Tensor]:
    return fake_half(input, dim), fake_half(input, dim)


def geglu_grad(
    grad_output: Tensor, input: Tensor, gelu: Tensor, dim: int, approximate: int, activate_left: bool
) -> Tensor:
    """Gradient with input's shape, dtype and strides; gelu is the forward's rounded second output."""
    gate, value = _halves(input, dim, activate_left)
    grad = grad_output.float()
    dgate = torch.ops.aten.gelu_backward(grad * value, gate, approximate=_form(approximate))
    dvalue = grad * gelu.float()
    halves = (dgate, dvalue) if activate_left else (dvalue, dgate)
    return written_like(input, torch.cat(halves, dim), input.dtype)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, *ctx.options = inputs
    ctx.save_for_backward(x, output[1])
    ctx.mark_non_differentiable(output[1])  # torch_npu's derivatives: output_differentiability [True, False]


def _backward(ctx: Any, grad: Tensor, _gelu_grad: Tensor | None) -> tuple[Tensor, None, None, None]:
    return torch.ops.npu.npu_geglu_grad(grad, *ctx.saved_tensors, *ctx.options), None, None, None


KERNELS = (
    OpKernel("npu_geglu", geglu, _fake_geglu, Autograd(_save, _backward)),
    OpKernel("npu_geglu_grad", geglu_grad, like("input")),
)
