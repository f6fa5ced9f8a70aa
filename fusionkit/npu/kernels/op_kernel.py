"""The implementation of one op: a CPU kernel, a fake kernel, and what autograd does with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from fusionkit.errors import MisuseError

Tensor = torch.Tensor


@dataclass(frozen=True, slots=True)
class Autograd:
    """`setup_context` and `backward` as `torch.library.register_autograd` takes them."""

    setup_context: Callable[..., None]
    backward: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Under autograd the op is replaced by `call`, which takes its arguments by name and calls another op, as in torch_npu."""

    call: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class NoBackward:
    """The forward is allowed under autograd; its backward raises MisuseError with the reason."""

    reason: str


_NO_SECOND = NoBackward("torch_npu has no second derivative for it")


@dataclass(frozen=True, slots=True)
class OpKernel:
    """Kernels of op. `cpu` and `fake` take every argument of the schema by keyword, defaults included.

    `cpu` returns tensors with the shapes, dtypes and strides of `fake`, never an input itself.
    """

    op: str
    cpu: Callable[..., Any]
    fake: Callable[..., Any]
    autograd: Autograd | Rewritten | NoBackward = _NO_SECOND


def written_like(template: Tensor, value: Tensor, dtype: torch.dtype) -> Tensor:
    """value, rounded to dtype, in a new tensor with the strides that `empty_like(template)` gives."""
    return torch.empty_like(template, dtype=dtype).copy_(value)


def like(name: str) -> Callable[..., Tensor]:
    """A fake kernel whose result looks like the argument `name`: shape, dtype and strides."""
    return lambda **arguments: torch.empty_like(arguments[name])


def fake_half(input: Tensor, dim: int) -> Tensor:
    """A contiguous tensor of input's shape, halved along dim."""
    shape = list(input.shape)
    shape[dim] = shape[dim] // 2
    return input.new_empty(shape)


def register_gradients(
    library: Any,
    name: str,
    schema: Any,
    autograd: Autograd | Rewritten | NoBackward,
    by_name: Callable[..., Any],
) -> None:
    """Register autograd for the op name (`npu::npu_swiglu`), defined in library.

    by_name converts a function with the schema's arguments as keywords to one that the dispatcher can call.
    """
    op = name.split("::")[1]
    if isinstance(autograd, Rewritten):
        library.impl(op, by_name(autograd.call), "Autograd")
    elif isinstance(autograd, Autograd):
        torch.library.register_autograd(
            name, autograd.backward, setup_context=autograd.setup_context, lib=library
        )
    else:
        message = f"{op} cannot be differentiated: {autograd.reason}"
        if any(argument.kwarg_only and _holds_tensors(argument.type) for argument in schema.arguments):
            library.impl(op, _recorded(op, message), "Autograd", with_keyset=True)
        else:
            torch.library.register_autograd(name, _raising(message), lib=library)


def _raising(message: str) -> Callable[..., Any]:
    def backward(_ctx: Any, *_grads: Any) -> Any:
        raise MisuseError(message)

    return backward


def _holds_tensors(kind: Any) -> bool:
    return str(kind) in ("Tensor", "Optional[Tensor]", "List[Tensor]", "Optional[List[Tensor]]")


def _recorded(name: str, message: str) -> Callable[..., Any]:
    """An Autograd kernel whose backward raises.

    For ops of npu:: with keyword-only tensors: register_autograd does not take those.
    """

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, call: Callable[[], Any], *_tensors: Tensor) -> Any:
            return tuple(call())

        backward = staticmethod(_raising(message))

    def autograd_kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.npu, packet), overload or "default")

        def call() -> Any:
            with torch._C._AutoDispatchBelowAutograd():
                return op.redispatch(keyset & torch._C._after_autograd_keyset, *args, **kwargs)

        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in tensors):
            return call()
        apply: Callable[..., Any] = Recorded.apply
        result = apply(call, *tensors)
        return list(result) if len(op._schema.returns) == 1 else result

    return autograd_kernel
