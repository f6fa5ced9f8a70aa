"""Computation on the dry device raises DryRunError, before torch_npu's own kernel is called.

The stand-in's functions fail as well, but torch_npu ignores some return codes (its `.item()` gives 0 after a failed
copy) and reports errors late. So every kernel of the dispatch key is replaced, except those that allocate, view, or
copy a constant from the host to the device.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fusionkit.errors import DryRunError
from fusionkit.npu.dry.behaviours import REFUSAL

KEY = "PrivateUse1"

# Ops that allocate or view memory; none computes a value.
_ALLOCATING_OR_VIEWING = """
    empty.memory_format empty_like empty_strided new_empty_strided as_strided squeeze squeeze.dim unsqueeze view
    view_as_complex view_as_real _reshape_alias unfold set_ set_.source_Storage set_.source_Storage_storage_offset
    set_.source_Tensor is_pinned _pin_memory
"""
ALLOWED = frozenset(f"aten::{op}" for op in _ALLOCATING_OR_VIEWING.split())

_new_library: Any = torch.library.Library  # torch leaves its methods without types


def refuse_computation() -> list[Any]:
    """Replace the device's kernels, as long as the returned libraries exist."""
    libraries: dict[str, Any] = {}
    for name in sorted(torch._C._dispatch_get_registrations_for_dispatch_key(KEY)):
        namespace, op = name.split("::", 1)
        if name in ALLOWED:
            continue
        library = libraries.setdefault(namespace, _new_library(namespace, "IMPL"))
        guard = _GUARDED.get(name)
        if guard is None:
            library.impl(op, _refusing(name), KEY, allow_override=True)
        else:
            kernel = guard(torch.library.get_kernel(name, KEY))
            library.impl(op, kernel, KEY, with_keyset=True, allow_override=True)
    return list(libraries.values())


def keep_no_constants() -> None:
    """Disable constant propagation of fake tensors on the device, for this process.

    torch keeps the value of a one-element tensor made from a Python number with the fake tensor and computes with it
    while tracing, which would be a computation on this device. Without it, reading such a value is data dependent.
    """
    original = FakeTensorMode.may_turn_const

    def may_turn_const(mode: FakeTensorMode, tensor: torch.Tensor) -> bool:
        return tensor.device.type != "npu" and original(mode, tensor)

    FakeTensorMode.may_turn_const = may_turn_const  # type: ignore[assignment, method-assign]


def refuse(name: str) -> NoReturn:
    """Raise DryRunError for an op."""
    raise DryRunError(f"{name} on device npu: {REFUSAL}")


def _refusing(name: str) -> Callable[..., Any]:
    def kernel(*_args: Any, **_kwargs: Any) -> NoReturn:
        refuse(name)

    return kernel


def _to_copy(original: Any) -> Callable[..., Any]:
    def kernel(keyset: Any, source: torch.Tensor, **options: Any) -> Any:
        device = torch.device(options.get("device") or source.device)
        same_dtype = options.get("dtype") in (None, source.dtype)
        if device.type == "cpu" or (source.device.type != "cpu" and not same_dtype):
            refuse("aten::_to_copy")
        if source.device.type != "cpu":
            return _same_bytes("aten::_to_copy", source, options.get("memory_format"))
        if not same_dtype:  # the host casts its own constant
            source, options["dtype"] = source.to(options["dtype"]), None
        return original.call_boxed(keyset, source, **options)

    return kernel


def _copy_into(target_at: int, source_at: int, name: str) -> Callable[[Any], Callable[..., Any]]:
    def guard(original: Any) -> Callable[..., Any]:
        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            target, source = args[target_at], args[source_at]
            if source.device.type != "cpu" or target.device.type == "cpu" or not _is_plain(target):
                refuse(name)
            return original.call_boxed(keyset, *args, **kwargs)

        return kernel

    return guard


def _clone(_original: Any) -> Callable[..., Any]:
    def kernel(_keyset: Any, source: torch.Tensor, *, memory_format: Any = None) -> torch.Tensor:
        return _same_bytes("aten::clone", source, memory_format)

    return kernel


def _resize(original: Any) -> Callable[..., Any]:
    def kernel(keyset: Any, tensor: torch.Tensor, size: list[int], **options: Any) -> Any:
        stored_bytes = tensor.untyped_storage().nbytes()
        if 0 < stored_bytes < tensor.element_size() * (math.prod(size) + tensor.storage_offset()):
            refuse("aten::resize_")  # growing the storage would copy inside the device
        return original.call_boxed(keyset, tensor, size, **options)

    return kernel


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor's values lie in memory as they stand, row by row."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def _same_bytes(name: str, source: torch.Tensor, memory_format: Any) -> torch.Tensor:
    """Copy a constant inside the device, byte by byte; other layouts are refused."""
    as_it_stands = memory_format in (None, torch.preserve_format, torch.contiguous_format)
    if not as_it_stands or not _is_plain(source):
        refuse(name)
    copy = torch.empty(source.size(), dtype=source.dtype, device=source.device)
    ctypes.memmove(copy.data_ptr(), source.data_ptr(), source.numel() * source.element_size())
    return copy


_GUARDED: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "aten::_to_copy": _to_copy,
    "aten::copy_": _copy_into(0, 1, "aten::copy_"),
    "aten::_copy_from": _copy_into(1, 0, "aten::_copy_from"),
    "aten::_copy_from_and_resize": _copy_into(1, 0, "aten::_copy_from_and_resize"),
    "aten::clone": _clone,
    "aten::resize_": _resize,
}
