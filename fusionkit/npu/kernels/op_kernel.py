"""The implementation of one op: a CPU kernel, a fake kernel and optionally a backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fusionkit.errors import MisuseError


@dataclass(frozen=True, slots=True)
class Autograd:
    """`setup_context` and `backward` as `torch.library.register_autograd` takes them."""

    setup_context: Callable[..., None] | None
    backward: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Under autograd the op is replaced by `call`, which takes its arguments by name and calls another op, as in torch_npu."""

    call: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class OpKernel:
    """Kernels of op. `cpu` and `fake` take every argument of the schema by keyword, defaults included.

    `cpu` returns tensors with the shapes, dtypes and strides of `fake`, never an input itself.
    """

    op: str
    cpu: Callable[..., Any]
    fake: Callable[..., Any]
    autograd: Autograd | Rewritten


def no_backward(op: str, reason: str) -> Autograd:
    """Allow the forward under autograd; its backward raises MisuseError."""

    def backward(ctx: Any, *grads: Any) -> Any:  # noqa: ARG001
        raise MisuseError(f"{op} cannot be differentiated: {reason}")

    return Autograd(None, backward)


def written_like(template: torch.Tensor, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """value, rounded to dtype, in a new tensor with the strides that `empty_like(template)` gives."""
    return torch.empty_like(template, dtype=dtype).copy_(value)
