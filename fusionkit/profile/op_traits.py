"""Which torch ops run a kernel on a CPU, according to the dispatcher and the schemas."""

from __future__ import annotations

from typing import Any, Literal

import torch

from fusionkit.profile.cpu_types import has_cpu_type

Role = Literal["kernel", "leaf", "transparent"]
"""kernel: one row, inner ops hidden. leaf: a row if no inner op is one. transparent: never a row."""

NO_KERNEL: frozenset[str] = frozenset(
    (
        *("empty", "empty_like", "empty_strided", "empty_permuted", "empty_quantized", "empty_meta"),
        *("new_empty", "new_empty_strided", "resize_", "resize_as_", "set_", "_efficientzerotensor"),
        *("squeeze_", "unsqueeze_", "t_", "transpose_", "as_strided_", "detach_", "swapaxes_", "swapdims_"),
        *("item", "_local_scalar_dense", "is_nonzero", "result_type", "is_same_size", "is_pinned"),
        *("_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "_lazy_clone", "lift"),
        *("_assert_scalar", "_assert_tensor_metadata", "_functional_assert_scalar", "_print"),
        *("sym_constrain_range", "sym_constrain_range_for_size"),
        *("_functional_sym_constrain_range", "_functional_sym_constrain_range_for_size"),
    )
)
"""aten ops that allocate, change metadata, assert or read one value; views are recognised by their schemas."""

_SILENT_NAMESPACES = frozenset({"profiler"})
_WORKING_KEYS = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def op_role(name: str, fused_namespaces: tuple[str, ...]) -> Role:
    """Role of the profiler event `name`; a name that is no `namespace::op` is a range, and transparent.

    The profiler reports no overload names, so all overloads of an aten op are considered. Kernel: the op is in the
    type table, or it has a CPU kernel in the dispatcher and no overload that only calls other ops. Leaf: some
    overloads call other ops (aten::repeat_interleave), or one implementation for all backends may compute itself.
    Transparent: all overloads call other ops, the schema returns a view of an input, or the op is in `NO_KERNEL`.
    """
    namespace, _, op = name.partition("::")
    if not namespace.isidentifier() or not op.isidentifier() or namespace in _SILENT_NAMESPACES:
        return "transparent"
    if namespace in fused_namespaces:
        return "kernel"
    if namespace != "aten":
        return "leaf"
    if op in NO_KERNEL:
        return "transparent"
    if has_cpu_type(name) or name == "aten::copy_":
        return "kernel"
    return _aten_role(op)


def _aten_role(op: str) -> Role:
    packet: Any = getattr(torch.ops.aten, op, None)
    if not hasattr(packet, "overloads"):
        return "leaf"
    overloads: list[Any] = [
        overload
        for overload in (getattr(packet, name) for name in packet.overloads())
        if not any("Dimname" in str(argument.type) for argument in overload._schema.arguments)
    ]
    if any(_is_view(overload) for overload in overloads):
        return "transparent"
    on_cpu = [overload for overload in overloads if _has_kernel(overload, "CPU")]
    others = [overload for overload in overloads if overload not in on_cpu]
    if on_cpu and not any(_has_kernel(overload, "CompositeImplicitAutograd") for overload in others):
        return "kernel"
    if on_cpu or any(_has_kernel(overload, key) for overload in others for key in _WORKING_KEYS):
        return "leaf"
    return "transparent"


def _has_kernel(overload: Any, key: str) -> bool:
    """Whether the dispatcher has a kernel under `key`; it does not know overloads for TorchScript only."""
    name = overload.name()
    if not torch._C._dispatch_has_kernel(name):
        return False
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def _is_view(overload: Any) -> bool:
    """Whether the result aliases an input that is not written to."""
    return any(
        value.alias_info is not None and not value.alias_info.is_write for value in overload._schema.returns
    )
