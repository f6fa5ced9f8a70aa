"""How a counterexample search calls a computation, and what it holds against a replacement's result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from fusionkit.numeric.figures import bit_equal
from fusionkit.numeric.samples import clone


def comparable(three: tuple[Any, Any, Any], finite: bool, overflows: bool) -> tuple[tuple[Any, ...], str]:
    """Expected, actual and reference with zeros where any answer is right, and what is certainly wrong.

    Where finite inputs give a non-finite original, any non-finite value is right, and where partial sums may overflow
    (`overflows`), depending on their order, it is right everywhere; so is Inf within four units of the
    dtype's largest number. Rows whose float64 magnitude is below its smallest normal are compared absolutely, by one
    smallest normal.
    """
    expected, actual, reference = three
    if not all(isinstance(value, torch.Tensor) and value.is_floating_point() for value in three):
        return three, ""
    if not expected.shape == actual.shape == reference.shape or expected.dtype != actual.dtype:
        return three, ""
    limits = torch.finfo(expected.dtype)
    tiny = limits.tiny
    free = ~expected.isfinite() & ~actual.isfinite() if finite else torch.zeros_like(actual, dtype=torch.bool)
    if overflows:
        free |= ~actual.isfinite()
    free |= actual.isinf() & (reference * actual.sign() >= limits.max * (1 - 4 * limits.eps))
    size = reference.abs().nan_to_num(float("inf"), float("inf"), float("inf"))
    small = size.amax(dim=-1, keepdim=True) < tiny if expected.dim() and expected.shape[-1] else size < tiny
    small = small.expand(expected.shape)
    far = small & ((actual.double() - reference.double()).abs() > tiny) & ~free
    if bool(far.any()):
        return three, f"{int(far.sum())} elements differ by more than the smallest normal number {tiny:g}"
    return tuple(torch.where(free | small, torch.zeros((), dtype=value.dtype), value) for value in three), ""


def call_on_copies(function: Callable[..., Any], given: Sequence[Any]) -> tuple[Any, bool]:
    """The result on copies of the inputs, and whether the call left the copies alone; an equal value is a write too."""
    copies = [clone(value) for value in given]
    tensors = [copy for copy in copies if isinstance(copy, torch.Tensor)]
    before = [tensor._version for tensor in tensors]
    result = function(*copies)
    unchanged = before == [tensor._version for tensor in tensors]
    return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, result), unchanged


def aliased_inputs(function: Callable[..., Any], given: Sequence[Any]) -> set[int]:
    """Indexes of the inputs whose memory an output shares."""
    copies = [clone(value) for value in given]
    with torch.no_grad():
        outputs = [leaf for leaf in tree_leaves(function(*copies)) if isinstance(leaf, torch.Tensor)]
    memory = {output.untyped_storage().data_ptr() for output in outputs if output.numel()}
    return {
        index
        for index, copy in enumerate(copies)
        if isinstance(copy, torch.Tensor) and copy.numel() and copy.untyped_storage().data_ptr() in memory
    }


def same_bits(first: Any, second: Any) -> bool:
    """Whether two results hold the same bits and plain values."""
    pairs = zip(tree_leaves(first), tree_leaves(second), strict=True)
    return all(bit_equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


def worst_row(expected: Any, actual: Any) -> tuple[int, tuple[float, ...], tuple[float, ...]]:
    """The row with the largest difference, and at most four values of both sides around its largest difference."""
    for a, b in zip(tree_leaves(expected), tree_leaves(actual), strict=False):
        if (
            not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor))
            or a.shape != b.shape
            or not a.numel()
        ):
            continue
        left, right = (t.double().reshape(-1, t.shape[-1] if t.dim() else 1) for t in (a, b))
        difference = (left - right).abs().nan_to_num(float("inf"))
        difference = torch.where((left == right) | (left.isnan() & right.isnan()), 0.0, difference)
        row = int(difference.amax(dim=1).argmax())
        start = max(0, min(int(difference[row].argmax()), left.shape[1] - 4))
        return (
            row,
            tuple(left[row, start : start + 4].tolist()),
            tuple(right[row, start : start + 4].tolist()),
        )
    return 0, (), ()


def constant(value: torch.Tensor, _index: int) -> torch.Tensor:
    """Draws `value` for an argument, whatever its index."""
    return value


def one_line(error: BaseException) -> str:
    """Kind and first line of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def dtypes_of(result: Any) -> list[Any]:
    """The dtype of each output, None for one that is no tensor."""
    return [getattr(leaf, "dtype", None) for leaf in tree_leaves(result)]
