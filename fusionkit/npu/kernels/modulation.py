"""fusionkit::layer_norm_scale_shift, the kit's own op for adaptive layer norm, which torch_npu lacks."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from fusionkit.npu.kernels.op_kernel import Autograd, OpKernel

Tensor = torch.Tensor


def layer_norm_scale_shift(x: Tensor, scale: Tensor, shift: Tensor, eps: float) -> Tensor:
    """layer_norm(x) * (1 + scale) + shift over the last dimension D of x, without affine.

    x [..., D]; scale and shift broadcast against x as given ([B, 1, D] for x [B, S, D]). float32 inside,
    x's dtype and a contiguous result. On an npu tensor it calls mindiesd.layernorm_scale_shift if that package is
    installed and accepts the shapes.
    """
    if x.device.type == "npu" and _fits_mindiesd(x, scale, shift):
        fused = _mindiesd(x, scale, shift, eps)
        if fused is not None:
            return fused
    normalized = functional.layer_norm(x.float(), [x.shape[-1]], eps=eps)
    return (normalized * (1 + scale.float()) + shift.float()).to(x.dtype).contiguous()


def _fits_mindiesd(x: Tensor, scale: Tensor, shift: Tensor) -> bool:
    """Whether mindiesd accepts the shapes: x [B, S, D], scale and shift [B, 1, D] (MindIE-SD layers/adalayernorm.py)."""
    row = [x.shape[0], 1, x.shape[-1]] if x.dim() == 3 else None
    return all(list(part.shape) == row and part.dtype == x.dtype for part in (scale, shift))


def _mindiesd(x: Tensor, scale: Tensor, shift: Tensor, eps: float) -> Tensor | None:
    try:
        import mindiesd
    except ImportError:
        return None
    norm = torch.nn.LayerNorm(x.shape[-1], eps=eps, elementwise_affine=False)
    fused: Tensor = mindiesd.layernorm_scale_shift(norm, x, scale, shift, fused=True)
    return fused


def _fake(x: Tensor, scale: Tensor, shift: Tensor, eps: float) -> Tensor:  # noqa: ARG001
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    x, scale, shift, ctx.eps = inputs
    ctx.save_for_backward(x, scale, shift)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
    x, scale, shift = ctx.saved_tensors
    upstream, wide = grad.float(), x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    rstd = torch.rsqrt(centred.square().mean(-1, keepdim=True) + ctx.eps)
    normalized = centred * rstd
    inner = upstream * (1 + scale.float())
    mean = inner.mean(-1, keepdim=True)
    dx = (inner - mean - normalized * (inner * normalized).mean(-1, keepdim=True)) * rstd
    dscale = (upstream * normalized).sum_to_size(scale.shape)
    dshift = upstream.sum_to_size(shift.shape)
    return dx.to(x.dtype), dscale.to(scale.dtype), dshift.to(shift.dtype), None


KERNELS = (OpKernel("layer_norm_scale_shift", layer_norm_scale_shift, _fake, Autograd(_save, _backward)),)
