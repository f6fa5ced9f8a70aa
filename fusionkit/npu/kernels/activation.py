"""npu_swiglu, npu_gelu and npu_fast_gelu. Formulas: ops-nn docs aclnnSwiGlu, aclnnGeluV2, aclnnFastGelu."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from fusionkit.npu.kernels.op_kernel import Autograd, OpKernel, fake_half, like, written_like

Tensor = torch.Tensor


def swiglu(input: Tensor, dim: int) -> Tensor:
    """silu(FIRST half of input along dim) * second half, in float32, rounded once; contiguous."""
    gate, value = input.float().chunk(2, dim)
    return (functional.silu(gate) * value).to(input.dtype).contiguous()


def swiglu_backward(grad_output: Tensor, input: Tensor, dim: int) -> Tensor:
    """Gradient with input's shape, dtype and strides."""
    gate, value = input.float().chunk(2, dim)
    grad, sigmoid = grad_output.float(), gate.sigmoid()
    dgate = grad * value * sigmoid * (1 + gate * (1 - sigmoid))
    return written_like(input, torch.cat((dgate, grad * gate * sigmoid), dim), input.dtype)


def gelu(input: Tensor, approximate: str) -> Tensor:
    """x * Phi(x) for 'none', the tanh form for 'tanh', in float32, rounded once."""
    return written_like(input, functional.gelu(input.float(), approximate=approximate), input.dtype)


def gelu_backward(grad_output: Tensor, input: Tensor, approximate: str) -> Tensor:
    """Gradient with input's shape, dtype and strides."""
    grad = torch.ops.aten.gelu_backward(grad_output.float(), input.float(), approximate=approximate)
    return written_like(input, grad, input.dtype)


def fast_gelu(input: Tensor) -> Tensor:
    """x * sigmoid(1.702 x): neither the erf nor the tanh form, in float32, rounded once."""
    x = input.float()
    return written_like(input, x * torch.sigmoid(1.702 * x), input.dtype)


def fast_gelu_backward(grad: Tensor, input: Tensor) -> Tensor:
    """Gradient with input's shape, dtype and strides."""
    x = input.float()
    sigmoid = torch.sigmoid(1.702 * x)
    return written_like(input, grad.float() * sigmoid * (1 + 1.702 * x * (1 - sigmoid)), input.dtype)


def _save_swiglu(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    x, ctx.dim = inputs
    ctx.save_for_backward(x)


def _swiglu_grad(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return torch.ops.npu.npu_swiglu_backward(grad, *ctx.saved_tensors, ctx.dim), None


def _save_gelu(
    ctx: Any,
    inputs: tuple[Tensor],
    keyword_only_inputs: dict[str, str],
    output: Tensor,  # noqa: ARG001
) -> None:
    ctx.approximate = keyword_only_inputs["approximate"]
    ctx.save_for_backward(*inputs)


def _gelu_grad(ctx: Any, grad: Tensor) -> Any:
    return torch.ops.npu.npu_gelu_backward(grad, *ctx.saved_tensors, approximate=ctx.approximate)


def _save_fast_gelu(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs)


def _fast_gelu_grad(ctx: Any, grad: Tensor) -> Any:
    return torch.ops.npu.npu_fast_gelu_backward(grad, *ctx.saved_tensors)


KERNELS = (
    OpKernel("npu_swiglu", swiglu, fake_half, Autograd(_save_swiglu, _swiglu_grad)),
    OpKernel("npu_swiglu_backward", swiglu_backward, like("input")),
    OpKernel("npu_gelu", gelu, like("input"), Autograd(_save_gelu, _gelu_grad)),
    OpKernel("npu_gelu_backward", gelu_backward, like("input")),
    OpKernel("npu_fast_gelu", fast_gelu, like("input"), Autograd(_save_fast_gelu, _fast_gelu_grad)),
    OpKernel("npu_fast_gelu_backward", fast_gelu_backward, like("input")),
)
