"""Checks for the table of op constraints.

A check reads shapes, dtypes, strides and literals only, so it works on real, fake and meta tensors, and on any
object with `.shape` and `.dtype`. It returns None if the call obeys the rule or omits the argument, else a short
text of the offending value. A symbolic size counts as its size at capture; no guard is installed. An unbacked size
violates no rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

Arguments = Mapping[str, Any]
Check = Callable[[Arguments], str | None]

# A row of the table of constraints: argument, rule, source, check.
Row = tuple[str, str, str, Check]

LOW_PRECISION = (torch.float16, torch.bfloat16)
FLOATS = (*LOW_PRECISION, torch.float32)


def sizes(tensor: Any) -> tuple[int | None, ...]:
    """Shape of tensor with symbolic sizes replaced by the sizes of the capture (None where unknown)."""
    return tuple(_known(size) for size in tensor.shape)


def _known(size: Any) -> int | None:
    if isinstance(size, torch.SymInt):
        return int(size.node.hint) if size.node.has_hint() else None
    return int(size)


def is_tensor(value: Any) -> bool:
    """Whether value has a shape and a dtype."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def shape_text(tensor: Any) -> str:
    """`[2, 3]`, with `?` for an unknown size."""
    return "[" + ", ".join("?" if size is None else str(size) for size in sizes(tensor)) + "]"


def dtype_text(tensor: Any) -> str:
    """`float16` for torch.float16."""
    return str(tensor.dtype).removeprefix("torch.")


def _same(left: Sequence[int | None], right: Sequence[int | None]) -> bool:
    return len(left) == len(right) and all(
        a == b or a is None or b is None for a, b in zip(left, right, strict=True)
    )


def _over(names: Sequence[str], broken: Callable[..., str | None]) -> Check:
    """A check of `broken(*tensors)` that applies only if every named argument is a tensor."""

    def check(arguments: Arguments) -> str | None:
        tensors = [arguments[name] for name in names]
        return broken(*tensors) if all(map(is_tensor, tensors)) else None

    return check


def present(name: str) -> Check:
    """The argument is a tensor, not None."""
    return lambda arguments: None if is_tensor(arguments[name]) else repr(arguments[name])


def dtype_in(name: str, allowed: Sequence[torch.dtype]) -> Check:
    """The tensor's dtype is one of allowed."""
    return _over([name], lambda t: None if t.dtype in allowed else dtype_text(t))


def same_dtype(name: str, other: str) -> Check:
    """Both tensors have one dtype."""
    return _over(
        [name, other], lambda t, o: None if t.dtype == o.dtype else f"{dtype_text(t)} with {dtype_text(o)}"
    )


def same_dtype_or_float32(name: str, other: str) -> Check:
    """The tensor has the dtype of other, or is float32 with a float16 or bfloat16 other."""

    def broken(tensor: Any, reference: Any) -> str | None:
        mixed = tensor.dtype == torch.float32 and reference.dtype in LOW_PRECISION
        if mixed or tensor.dtype == reference.dtype:
            return None
        return f"{dtype_text(tensor)} with {dtype_text(reference)} {other}"

    return _over([name, other], broken)


def rank_between(name: str, low: int, high: int) -> Check:
    """The tensor has low to high dimensions."""
    return _over([name], lambda t: None if low <= len(t.shape) <= high else shape_text(t))


def same_shape(name: str, other: str) -> Check:
    """Both tensors have one shape."""
    return _over(
        [name, other],
        lambda t, o: None if _same(sizes(t), sizes(o)) else f"{shape_text(t)} with {shape_text(o)}",
    )


def trailing_shape(name: str, other: str) -> Check:
    """The tensor's shape is the last one or more dimensions of other's."""

    def broken(tensor: Any, reference: Any) -> str | None:
        shape, whole = sizes(tensor), sizes(reference)
        if 1 <= len(shape) <= len(whole) and _same(shape, whole[len(whole) - len(shape) :]):
            return None
        return f"{shape_text(tensor)} with {shape_text(reference)}"

    return _over([name, other], broken)


def leading_shape(name: str, other: str, normalized: str) -> Check:
    """The tensor's shape is other's without the dimensions of normalized, or with ones in their place."""

    def broken(tensor: Any, reference: Any, weight: Any) -> str | None:
        rank = len(weight.shape)
        lead = sizes(reference)[: max(0, len(reference.shape) - rank)]
        if _same(sizes(tensor), lead) or _same(sizes(tensor), (*lead, *[1] * rank)):
            return None
        return f"{shape_text(tensor)} with {shape_text(reference)} and {shape_text(weight)}"

    return _over([name, other, normalized], broken)


def broadcasts_to(name: str, other: str) -> Check:
    """The tensor broadcasts against other without enlarging it."""

    def broken(tensor: Any, reference: Any) -> str | None:
        shape, whole = sizes(tensor), sizes(reference)
        ends = whole[len(whole) - len(shape) :] if len(shape) <= len(whole) else ()
        if len(ends) == len(shape) and all(
            _same([a], [b]) or a == 1 for a, b in zip(shape, ends, strict=True)
        ):
            return None
        return f"{shape_text(tensor)} with {shape_text(reference)}"

    return _over([name, other], broken)


def not_empty(name: str) -> Check:
    """The tensor has elements."""
    return _over([name], lambda t: shape_text(t) if 0 in sizes(t) else None)


def contiguous(name: str) -> Check:
    """The tensor is contiguous; an object without strides counts as contiguous."""

    def broken(tensor: Any) -> str | None:
        if not hasattr(tensor, "stride"):
            return None
        strides = tuple(_known(stride) for stride in tensor.stride())
        step = 1
        for size, stride in zip(reversed(sizes(tensor)), reversed(strides), strict=True):
            if size is None or stride is None or size == 0:
                return None
            if size != 1 and stride != step:
                return f"strides {list(strides)} with {shape_text(tensor)}"
            step *= size
        return None

    return _over([name], broken)


def last_size(name: str, allowed: Callable[[int], bool]) -> Check:
    """The size of the tensor's last dimension satisfies allowed."""

    def broken(tensor: Any) -> str | None:
        shape = sizes(tensor)
        last = shape[-1] if shape else None
        return None if last is None or allowed(last) else str(last)

    return _over([name], broken)


def dim_in_range(name: str, tensor_name: str) -> Check:
    """The dimension number is in [-rank, rank - 1] of the tensor."""

    def check(arguments: Arguments) -> str | None:
        tensor, dim = arguments[tensor_name], arguments[name]
        if not is_tensor(tensor) or -len(tensor.shape) <= dim < len(tensor.shape):
            return None
        return f"{dim} with {shape_text(tensor)}"

    return check


def even_size(name: str, dim_name: str) -> Check:
    """The tensor's size along the dimension given by another argument is even."""

    def check(arguments: Arguments) -> str | None:
        tensor, dim = arguments[name], arguments[dim_name]
        if not is_tensor(tensor) or not -len(tensor.shape) <= dim < len(tensor.shape):
            return None
        size = sizes(tensor)[dim]
        return None if size is None or size % 2 == 0 else f"{size} along dim {dim}"

    return check


def halved_shape(name: str, other: str, dim_name: str) -> Check:
    """The tensor's shape is other's with the size along the given dimension halved."""

    def check(arguments: Arguments) -> str | None:
        tensor, reference, dim = arguments[name], arguments[other], arguments[dim_name]
        if not is_tensor(tensor) or not is_tensor(reference):
            return None
        half = list(sizes(reference))
        if -len(half) <= dim < len(half):
            whole = half[dim]
            half[dim] = None if whole is None else whole // 2
        same = _same(sizes(tensor), half)
        return None if same else f"{shape_text(tensor)} with {shape_text(reference)}"

    return check


def absent(name: str) -> Check:
    """The argument is None."""

    def check(arguments: Arguments) -> str | None:
        value = arguments[name]
        return None if value is None else shape_text(value) if is_tensor(value) else repr(value)

    return check


def one_of(name: str, allowed: Sequence[object]) -> Check:
    """The literal is one of allowed."""
    return lambda arguments: None if arguments[name] in allowed else repr(arguments[name])


def at_least(name: str, low: float) -> Check:
    """The number is at least low; an unbacked number violates no rule."""

    def check(arguments: Arguments) -> str | None:
        value = arguments[name]
        if not isinstance(value, int | float) or (value >= low and not math.isnan(value)):
            return None
        return repr(value)

    return check


def number_between(name: str, low: float, high: float) -> Check:
    """The number is in [low, high]; an unbacked number violates no rule."""

    def check(arguments: Arguments) -> str | None:
        value = arguments[name]
        return None if not isinstance(value, int | float) or low <= value <= high else repr(value)

    return check


def sizes_in(name: str, count: int, allowed: Callable[[int], bool]) -> Check:
    """The sizes of the tensor's last count dimensions satisfy allowed."""

    def broken(tensor: Any) -> str | None:
        last = sizes(tensor)[len(tensor.shape) - count :] if len(tensor.shape) >= count else ()
        return None if all(size is None or allowed(size) for size in last) else shape_text(tensor)

    return _over([name], broken)
