"""Autograd of the ops of target cpu: by a backward op, through another op, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from fusionkit.npu.kernels.op_kernel import Autograd, Rewritten


def register_gradients(
    library: Any, name: str, schema: Any, autograd: Autograd | Rewritten, by_name: Callable[..., Any]
) -> None:
    """Register autograd for the op name (`npu::npu_swiglu`), defined in library.

    by_name converts a function with the schema's arguments as keywords to one that the dispatcher can call.
    """
    op = name.split("::")[1]
    if isinstance(autograd, Rewritten):
        library.impl(op, by_name(autograd.call), "Autograd")
    elif any(argument.kwarg_only and _holds_tensors(argument.type) for argument in schema.arguments):
        library.impl(op, _refusing(name, autograd.backward), "Autograd", with_keyset=True)
    else:
        torch.library.register_autograd(
            name, autograd.backward, setup_context=autograd.setup_context, lib=library
        )


def _holds_tensors(kind: Any) -> bool:
    return str(kind) in ("Tensor", "Optional[Tensor]", "List[Tensor]", "Optional[List[Tensor]]")


def _refusing(name: str, backward: Callable[..., Any]) -> Callable[..., Any]:
    """An Autograd kernel whose backward is `backward`, which raises.

    For ops with keyword-only tensors: register_autograd does not take those.
    """

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, call: Callable[[], Any], *_tensors: torch.Tensor) -> Any:
            return tuple(call())

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return backward(ctx, *grads)

    def autograd_kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        packet, _, overload = name.split("::")[1].partition(".")
        op = getattr(getattr(torch.ops.npu, packet), overload or "default")

        def call() -> Any:
            with torch._C._AutoDispatchBelowAutograd():
                return op.redispatch(keyset & torch._C._after_autograd_keyset, *args, **kwargs)

        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in tensors):
            return call()
        apply: Callable[..., Any] = Recorded.apply
        result = apply(call, *tensors)
        return list(result) if len(op._schema.returns) == 1 else result

    return autograd_kernel
