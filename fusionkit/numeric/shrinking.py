"""Make an input on which two computations differ smaller, while they still differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from fusionkit.numeric.judging import is_floating
from fusionkit.numeric.trial import Outcome
from fusionkit.verdict import Verdict

_TRIALS = 40
"""Inputs that are tried at most."""


def smaller(
    given: Sequence[Any], judge: Callable[[Sequence[Any]], Outcome]
) -> tuple[list[Any], Outcome | None]:
    """The smallest input among those tried on which `judge` still gives FAIL, with its outcome; None for `given` itself.

    Sizes are cut to 1, then arguments become ones or zeros, then rows become zeros, half by half.
    """
    best, outcome, left = list(given), None, _TRIALS
    for step in (_cut_sizes, _constants, _zero_rows):
        changed = True
        while changed and left:
            changed = False
            for candidate in step(best):
                left -= 1
                tried = judge(candidate)
                if tried.verdict is Verdict.FAIL and tried.results != ((), ()):
                    best, outcome, changed = candidate, tried, True
                    break
                if not left:
                    break
    return best, outcome


def _cut_sizes(given: Sequence[Any]) -> Iterator[list[Any]]:
    """A size that leading dims share, cut to 1 in all of them."""
    tensors = [value for value in given if isinstance(value, torch.Tensor)]
    for size in sorted({size for value in tensors for size in value.shape[:-1] if size > 1}, reverse=True):
        yield [_cut(value, size) if isinstance(value, torch.Tensor) else value for value in given]


def _cut(value: torch.Tensor, size: int) -> torch.Tensor:
    for dim in range(value.dim() - 1):
        if value.shape[dim] == size:
            value = value.narrow(dim, 0, 1)
    return value.clone()


def _constants(given: Sequence[Any]) -> Iterator[list[Any]]:
    """One argument as ones (or its dtype's zeros), if it is neither yet."""
    for index, value in enumerate(given):
        if (
            isinstance(value, torch.Tensor)
            and value.numel() > 1
            and bool((value != value.flatten()[0]).any())
        ):
            constant = torch.ones_like(value) if is_floating(value) else torch.zeros_like(value)
            yield [*given[:index], constant, *given[index + 1 :]]


def _zero_rows(given: Sequence[Any]) -> Iterator[list[Any]]:
    """The first or the second half of one argument's nonzero rows as zeros."""
    for index, value in enumerate(given):
        if not is_floating(value) or value.dim() < 2 or 0 in value.stride():
            continue
        rows = value.reshape(-1, value.shape[-1])
        used = (rows != 0).any(dim=1).nonzero().flatten()
        if len(used) < 2:
            continue
        for half in used.tensor_split(2):
            cleared = rows.clone()
            cleared[half] = 0
            yield [*given[:index], cleared.reshape(value.shape), *given[index + 1 :]]
