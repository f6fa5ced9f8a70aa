"""_npu_dtype_cast: the cast by which torch_npu implements Tensor.to. Source: its meta kernel."""

from __future__ import annotations

from typing import Any

import torch

from fusionkit.npu.kernels.op_kernel import Autograd, OpKernel

Tensor = torch.Tensor


def dtype_cast(input: Tensor, dtype: torch.dtype) -> Tensor:
    """A new contiguous tensor, even if the dtype does not change."""
    return _fake(input, dtype).copy_(input)


def _fake(input: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.empty(input.shape, dtype=dtype, device=input.device)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    ctx.input_dtype = inputs[0].dtype


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return torch.ops.npu._npu_dtype_cast_backward(grad, ctx.input_dtype), None


KERNELS = (
    OpKernel("_npu_dtype_cast", dtype_cast, _fake, Autograd(_save, _backward)),
    OpKernel(  # the cast of grad to the dtype of the forward's input
        "_npu_dtype_cast_backward",
        lambda grad, dtype: dtype_cast(grad, dtype),
        lambda grad, dtype: _fake(grad, dtype),
    ),
)
