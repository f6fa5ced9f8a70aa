"""npu_scaled_masked_softmax. Formulas: op-plugin docs of the op, ops-nn docs aclnnScaledMaskedSoftmaxBackward."""

from __future__ import annotations

from typing import Any

import torch

from fusionkit.npu.kernels.op_kernel import Autograd, OpKernel, like, written_like

Tensor = torch.Tensor

# The value of a masked score: not -inf, so that a fully masked row gives 1/N, not NaN.
MASKED_SCORE = -10000.0


def scaled_masked_softmax(x: Tensor, mask: Tensor, scale: float, **_: Any) -> Tensor:
    """softmax over the last dimension of x * scale, with masked scores (mask True) replaced by -10000.

    x [B, N, S1, S2]; mask broadcasts to it. float32 inside, one rounding to x's dtype; x's strides.
    """
    scores = (x.float() * scale).masked_fill(mask, MASKED_SCORE)
    return written_like(x, scores.softmax(-1), x.dtype)


def scaled_masked_softmax_backward(y_grad: Tensor, y: Tensor, mask: Tensor, scale: float, **_: Any) -> Tensor:
    """Gradient of x from the forward's rounded result y; 0 for masked scores."""
    result, upstream = y.float(), y_grad.float()
    product = upstream * result
    dx = (product - product.sum(-1, keepdim=True) * result) * scale
    return written_like(y_grad, dx.masked_fill(mask, 0.0), y_grad.dtype)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, mask, *ctx.options = inputs
    ctx.save_for_backward(output, mask)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
    dx = torch.ops.npu.npu_scaled_masked_softmax_backward(grad, *ctx.saved_tensors, *ctx.options)
    return dx, None, None, None


KERNELS = (
    OpKernel("npu_scaled_masked_softmax", scaled_masked_softmax, like("x"), Autograd(_save, _backward)),
    OpKernel("npu_scaled_masked_softmax_backward", scaled_masked_softmax_backward, like("y_grad")),
)
