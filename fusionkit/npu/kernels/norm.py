"""npu_rms_norm, npu_add_rms_norm. Formulas: ops-nn docs aclnnRmsNorm, aclnnRmsNormGrad, aclnnAddRmsNorm."""

from __future__ import annotations

from typing import Any

import torch

from fusionkit.npu.kernels.op_kernel import Autograd, NoBackward, OpKernel, written_like

Tensor = torch.Tensor


def _normalized_dims(gamma: Tensor) -> list[int]:
    return list(range(-gamma.dim(), 0))


def _rstd(x: Tensor, gamma: Tensor, epsilon: float) -> Tensor:
    """1 / sqrt(mean(x^2) + epsilon) over gamma's dimensions, which become 1; x is float32."""
    return torch.rsqrt(x.square().mean(_normalized_dims(gamma), keepdim=True) + epsilon)


def _fake_rstd(x: Tensor, gamma: Tensor) -> Tensor:
    shape = [*x.shape[: x.dim() - gamma.dim()], *[1] * gamma.dim()]
    return torch.empty(shape, dtype=torch.float32, device=x.device)


def rms_norm(input: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """(y, rstd): y = input * rstd * gamma in float32, rounded once to input's dtype; rstd is float32."""
    x = input.float()
    rstd = _rstd(x, gamma, epsilon)
    return written_like(input, x * rstd * gamma.float(), input.dtype), rstd


def _fake_rms_norm(input: Tensor, gamma: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(input), _fake_rstd(input, gamma)


def rms_norm_backward(dy: Tensor, input: Tensor, gamma: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    """(dx, dgamma): dx has input's dtype, dgamma is float32 whatever gamma is."""
    rank = input.dim() - gamma.dim()
    scale = rstd.reshape([*input.shape[:rank], *[1] * gamma.dim()])
    normalized, grad = input.float() * scale, dy.float()
    weighted = grad * gamma.float()
    mean = (weighted * normalized).mean(_normalized_dims(gamma), keepdim=True)
    dx = (weighted - normalized * mean) * scale
    dgamma = (grad * normalized).sum_to_size(gamma.shape)
    return written_like(input, dx, input.dtype), written_like(gamma, dgamma, torch.float32)


def _fake_rms_norm_backward(input: Tensor, gamma: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(input), torch.empty_like(gamma, dtype=torch.float32)


def add_rms_norm(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """(y, rstd, x): x = x1 + x2 is the THIRD output.

    Rounding of Atlas A2 and A3 (ops-nn golden of add_rms_norm): the sum is rounded to the inputs' dtype
    before the norm, and x * rstd again before gamma; other chips keep float32 throughout.
    """
    dtype = x1.dtype
    x = (x1.float() + x2.float()).to(dtype)
    rstd = _rstd(x.float(), gamma, epsilon)
    normalized = (x.float() * rstd).to(dtype)
    y = normalized.float() * gamma.float()
    return written_like(x1, y, dtype), rstd, written_like(x1, x, dtype)


def _fake_add_rms_norm(x1: Tensor, gamma: Tensor, **_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(x1), _fake_rstd(x1, gamma), torch.empty_like(x1)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, gamma, _ = inputs
    ctx.save_for_backward(x, gamma, output[1])
    ctx.mark_non_differentiable(output[1])  # torch_npu's derivatives: output_differentiability [True, False]


def _backward(ctx: Any, grad: Tensor, _rstd_grad: Tensor | None) -> tuple[Tensor, Tensor, None]:
    dx, dgamma = torch.ops.npu.npu_rms_norm_backward(grad, *ctx.saved_tensors)
    return dx, dgamma, None


KERNELS = (
    OpKernel("npu_rms_norm", rms_norm, _fake_rms_norm, Autograd(_save, _backward)),
    OpKernel("npu_rms_norm_backward", rms_norm_backward, _fake_rms_norm_backward),
    OpKernel(
        "npu_add_rms_norm",
        add_rms_norm,
        _fake_add_rms_norm,
        NoBackward("torch_npu has no backward for it; use npu_rms_norm on x1 + x2"),
    ),
)
