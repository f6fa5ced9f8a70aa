"""Rules for the table of op constraints: each has a text and a check.

A check reads shapes, dtypes, strides and literals only, so it works on real, fake and meta tensors, and on any
object with `.shape` and `.dtype`. It returns None if the call obeys the rule or omits the argument, else a short
text of the offending value. A symbolic size counts as its size at capture; no guard is installed. An unbacked size
violates no rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Arguments = Mapping[str, Any]
Check = Callable[[Arguments], str | None]
Size = int | None
Sizes = Sequence[Size]

LOW_PRECISION = (torch.float16, torch.bfloat16)
FLOATS = (*LOW_PRECISION, torch.float32)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule on one argument, and its check."""

    argument: str
    text: str
    check: Check


# A row of the table of constraints: source, rule.
Row = tuple[str, Rule]


def cited(source: str, *rules: Rule) -> tuple[Row, ...]:
    """The rows of rules that one source documents."""
    return tuple((source, rule) for rule in rules)


def rule(argument: str, text: str) -> Callable[[Check], Rule]:
    """Decorator of a check: the rule that it checks."""
    return functools.partial(Rule, argument, text)


def sizes(tensor: Any) -> tuple[Size, ...]:
    """Shape of tensor with symbolic sizes replaced by the sizes of the capture (None where unknown)."""
    return tuple(_known(size) for size in tensor.shape)


def _known(size: Any) -> Size:
    if isinstance(size, torch.SymInt):
        return int(size.node.hint) if size.node.has_hint() else None
    return int(size)


def same(left: Sizes, right: Sizes) -> bool:
    """Whether two shapes are equal; an unknown size equals any."""
    return len(left) == len(right) and all(
        a == b or a is None or b is None for a, b in zip(left, right, strict=True)
    )


def is_tensor(value: Any) -> bool:
    """Whether value has a shape and a dtype."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def shape_text(tensor: Any) -> str:
    """`[2, 3]`, with `?` for an unknown size."""
    return "[" + ", ".join("?" if size is None else str(size) for size in sizes(tensor)) + "]"


def dtype_text(tensor: Any) -> str:
    """`float16` for torch.float16."""
    return str(tensor.dtype).removeprefix("torch.")


def value_text(value: Any) -> str:
    """The shape of a tensor, or the literal."""
    return shape_text(value) if is_tensor(value) else repr(value)


def _alternatives(texts: Sequence[str]) -> str:
    *first, last = texts
    return f"must be {', '.join(first)} or {last}" if first else f"must be {last}"


def _over(text: str, names: Sequence[str], broken: Callable[..., str | None]) -> Rule:
    """A rule on the first name; `broken(*tensors)` is its check where every named argument is a tensor."""

    @rule(names[0], text)
    def check(arguments: Arguments) -> str | None:
        tensors = [arguments[name] for name in names]
        return broken(*tensors) if all(map(is_tensor, tensors)) else None

    return check


def shapes(text: str, fit: Callable[..., bool], *names: str) -> Rule:
    """The sizes of the named tensors satisfy fit; a violation shows their shapes."""

    def broken(*tensors: Any) -> str | None:
        if fit(*map(sizes, tensors)):
            return None
        first, *others = map(shape_text, tensors)
        return f"{first} with {' and '.join(others)}" if others else first

    return _over(text, names, broken)


def present(name: str, text: str = "must be a tensor, never None") -> Rule:
    """The argument is a tensor, not None."""
    return Rule(name, text, lambda arguments: None if is_tensor(arguments[name]) else repr(arguments[name]))


def absent(name: str) -> Rule:
    """The argument is None."""
    return Rule(name, "must be None", lambda given: None if given[name] is None else value_text(given[name]))


def dtype_in(name: str, *allowed: torch.dtype) -> Rule:
    """The tensor's dtype is one of allowed."""
    text = _alternatives([str(dtype).removeprefix("torch.") for dtype in allowed])
    return _over(text, [name], lambda tensor: None if tensor.dtype in allowed else dtype_text(tensor))


def same_dtype(name: str, other: str) -> Rule:
    """Both tensors have one dtype."""
    return _over(
        f"must have the dtype of {other}",
        [name, other],
        lambda t, o: None if t.dtype == o.dtype else f"{dtype_text(t)} with {dtype_text(o)}",
    )


def same_dtype_or_float32(name: str, other: str) -> Rule:
    """The tensor has the dtype of other, or is float32 with a float16 or bfloat16 other."""

    def broken(tensor: Any, reference: Any) -> str | None:
        mixed = tensor.dtype == torch.float32 and reference.dtype in LOW_PRECISION
        if mixed or tensor.dtype == reference.dtype:
            return None
        return f"{dtype_text(tensor)} with {dtype_text(reference)} {other}"

    text = f"must have the dtype of {other}, or float32 with a float16 or bfloat16 {other}"
    return _over(text, [name, other], broken)


def rank_between(name: str, low: int, high: int) -> Rule:
    """The tensor has low to high dimensions."""
    if low == high:
        count = f"{low} dimension{'s' if low > 1 else ''}"
    elif low == 0:
        count = f"at most {high} dimensions"
    else:
        count = f"{low} {'or' if high == low + 1 else 'to'} {high} dimensions"
    return shapes(f"must have {count}", lambda shape: low <= len(shape) <= high, name)


def same_shape(name: str, other: str) -> Rule:
    """Both tensors have one shape."""
    return shapes(f"must have the shape of {other}", same, name, other)


def trailing_shape(name: str, other: str) -> Rule:
    """The tensor's shape is the last one or more dimensions of other's."""
    text = f"must have the shape of {other}'s last dimensions"
    return shapes(text, lambda part, whole: len(part) > 0 and same(part, whole[-len(part) :]), name, other)


def leading_shape(name: str, other: str, normalized: str) -> Rule:
    """The tensor's shape is other's without the dimensions of normalized, or with ones in their place."""

    def fit(shape: Sizes, whole: Sizes, weight: Sizes) -> bool:
        lead = whole[: max(0, len(whole) - len(weight))]
        return same(shape, lead) or same(shape, (*lead, *[1] * len(weight)))

    return shapes(f"must have {other}'s leading dimensions", fit, name, other, normalized)


def broadcasts_to(name: str, other: str) -> Rule:
    """The tensor broadcasts against other without enlarging it."""

    def fit(shape: Sizes, whole: Sizes) -> bool:
        ends = zip(reversed(shape), reversed(whole), strict=False)
        return len(shape) <= len(whole) and all(a == 1 or same([a], [b]) for a, b in ends)

    return shapes(f"must broadcast against {other} without enlarging it", fit, name, other)


def not_empty(name: str) -> Rule:
    """The tensor has elements."""
    return shapes("must not be empty", lambda shape: 0 not in shape, name)


def contiguous(name: str) -> Rule:
    """The tensor is contiguous; an object without strides counts as contiguous."""

    def broken(tensor: Any) -> str | None:
        if not hasattr(tensor, "stride"):
            return None
        strides = [_known(stride) for stride in tensor.stride()]
        step = 1
        for size, stride in zip(reversed(sizes(tensor)), reversed(strides), strict=True):
            if size is None or stride is None or size == 0:
                return None
            if size != 1 and stride != step:
                return f"strides {strides} with {shape_text(tensor)}"
            step *= size
        return None

    return _over("must be contiguous", [name], broken)


def last_size(name: str, text: str, allowed: Callable[[int], bool]) -> Rule:
    """The size of the tensor's last dimension satisfies allowed."""

    def broken(tensor: Any) -> str | None:
        last = next(reversed(sizes(tensor)), None)
        return None if last is None or allowed(last) else str(last)

    return _over(text, [name], broken)


def dim_in_range(name: str, tensor_name: str) -> Rule:
    """The dimension number is in [-rank, rank - 1] of the tensor."""

    @rule(name, f"must be in [-rank, rank - 1] of {tensor_name}")
    def check(arguments: Arguments) -> str | None:
        tensor, dim = arguments[tensor_name], arguments[name]
        if not is_tensor(tensor) or -len(tensor.shape) <= dim < len(tensor.shape):
            return None
        return f"{dim} with {shape_text(tensor)}"

    return check


def even_size(name: str, dim_name: str) -> Rule:
    """The tensor's size along the dimension given by another argument is even."""

    @rule(name, f"must have an even size along {dim_name}")
    def check(arguments: Arguments) -> str | None:
        tensor, dim = arguments[name], arguments[dim_name]
        if not is_tensor(tensor) or not -len(tensor.shape) <= dim < len(tensor.shape):
            return None
        size = sizes(tensor)[dim]
        return None if size is None or size % 2 == 0 else f"{size} along dim {dim}"

    return check


def halved_shape(name: str, other: str, dim_name: str) -> Rule:
    """The tensor's shape is other's with the size along the given dimension halved."""

    @rule(name, f"must have the shape of {other}, halved along {dim_name}")
    def check(arguments: Arguments) -> str | None:
        tensor, reference, dim = arguments[name], arguments[other], arguments[dim_name]
        if not is_tensor(tensor) or not is_tensor(reference):
            return None
        half = list(sizes(reference))
        if -len(half) <= dim < len(half) and (whole := half[dim]) is not None:
            half[dim] = whole // 2
        return None if same(sizes(tensor), half) else f"{shape_text(tensor)} with {shape_text(reference)}"

    return check


def one_of(name: str, *allowed: object, text: str = "") -> Rule:
    """The literal is one of allowed."""
    text = text or _alternatives([repr(value) for value in allowed])
    return Rule(name, text, lambda arguments: None if arguments[name] in allowed else repr(arguments[name]))


def number(name: str, text: str, allowed: Callable[[float], bool]) -> Rule:
    """The number satisfies allowed; an unbacked number violates no rule."""

    @rule(name, text)
    def check(arguments: Arguments) -> str | None:
        value = arguments[name]
        return None if not isinstance(value, int | float) or allowed(value) else repr(value)

    return check
