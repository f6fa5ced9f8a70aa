"""How a counterexample search calls a computation, and what it holds against a replacement's result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from fusionkit.numeric.comparison import Comparison
from fusionkit.numeric.figures import bit_equal
from fusionkit.numeric.samples import clone


def comparable(three: tuple[Any, Any, Any], finite: bool, overflows: bool) -> tuple[tuple[Any, ...], str]:
    """Expected, actual and reference with zeros where any answer is right, and what is certainly wrong.

    Where finite inputs give a non-finite original, any non-finite value is right; where they give NaN by an overflow on
    the way, since float64 has a number there, nothing is judged. Where partial sums may overflow
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
    free = torch.zeros_like(actual, dtype=torch.bool)
    if finite:
        free = (~expected.isfinite() & ~actual.isfinite()) | (expected.isnan() & reference.isfinite())
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


def gradients(function: Callable[..., Any], *given: Any) -> tuple[torch.Tensor, ...]:
    """The gradients of the floating inputs, by cotangents that every floating dtype holds exactly.

    Zeros for an input that no output depends on. Raises RuntimeError where no output has a gradient.
    """
    with torch.enable_grad():
        copies = [clone(value) for value in given]
        inputs = [copy.requires_grad_() for copy in copies if is_floating(copy)]
        outputs = [
            leaf for leaf in tree_leaves(function(*copies)) if is_floating(leaf) and leaf.requires_grad
        ]
        if not outputs:
            raise RuntimeError("no output depends on an input")
        generator = torch.Generator().manual_seed(0)
        cotangents = [
            (torch.randint(1, 4, tuple(output.shape), generator=generator) * 0.5).to(output.dtype)
            for output in outputs
        ]
        return torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True, materialize_grads=True)


def is_floating(value: Any) -> bool:
    """Whether it is a tensor of real or complex floating numbers."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def finite(value: Any) -> bool:
    """Whether a tensor has no NaN and no Inf; everything else is finite."""
    if not is_floating(value):
        return True
    return bool((value if value.is_complex() else value.double()).isfinite().all())


def worst_original(comparisons: Iterable[Comparison]) -> dict[str, tuple[float, float]]:
    """The original's largest mean and max error, in ulps, by output name."""
    worst: dict[str, tuple[float, float]] = {}
    for comparison in comparisons:
        for output in comparison.outputs or (comparison,):
            mean, largest = worst.get(output.name, (0.0, 0.0))
            # "not measured" is NaN, for which max() returns its first argument
            mean = max(mean, output.original_mean_ulps)
            worst[output.name] = (mean, max(largest, output.original_max_ulps))
    return worst


def same_bits(first: Any, second: Any) -> bool:
    """Whether two results hold the same bits and plain values."""
    pairs = zip(tree_leaves(first), tree_leaves(second), strict=True)
    return all(bit_equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


def shows_equality(expected: Any, actual: Any) -> bool:
    """Whether both hold the same bits, in tensors of one dtype each with a finite number other than zero."""
    sides = tree_leaves(expected), tree_leaves(actual)
    return len(sides[0]) == len(sides[1]) > 0 and all(map(_show_equality, *sides))


def _show_equality(expected: Any, actual: Any) -> bool:
    if not (is_floating(expected) and is_floating(actual)):
        return False
    if expected.dtype != actual.dtype or expected.shape != actual.shape or not bit_equal(expected, actual):
        return False
    numbers = expected if expected.is_complex() else expected.double()
    return bool((numbers.isfinite() & (numbers != 0)).any())


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


def one_line(error: BaseException) -> str:
    """Kind and first line of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def dtypes_of(result: Any) -> list[Any]:
    """The dtype of each output, None for one that is no tensor."""
    return [getattr(leaf, "dtype", None) for leaf in tree_leaves(result)]
