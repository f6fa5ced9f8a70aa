"""One trial: both computations on one input, and what is held against the replacement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from fusionkit.errors import USER_CODE_ERRORS, MisuseError
from fusionkit.numeric.comparison import Comparison
from fusionkit.numeric.judging import (
    call_on_copies,
    comparable,
    dtypes_of,
    finite,
    gradients,
    one_line,
    shows_equality,
    worst_original,
)
from fusionkit.numeric.reference import run_float64
from fusionkit.numeric.samples import clone
from fusionkit.verdict import Verdict

_REDRAWS = 16
"""Draws that show the original's own error in a regime, before a larger error is held against the replacement."""

Redraw = Callable[[], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`raised`: the original raised, so that another draw may do; `results`: expected and actual where they differ."""

    verdict: Verdict
    reason: str
    raised: bool = False
    results: tuple[Any, Any] = ((), ())


class Trial:
    """Calls `original` and `replacement` on copies of an input and compares the results, and gradients if asked."""

    def __init__(
        self,
        original: Callable[..., Any],
        replacement: Callable[..., Any],
        compare: Callable[..., Comparison],
    ) -> None:
        self.original, self.replacement, self.compare = original, replacement, compare

    @torch.no_grad()
    def __call__(
        self,
        given: Sequence[Any],
        redraw: Redraw,
        *,
        overflows: bool = False,
        other_layout: bool = False,
        replacement: Callable[..., Any] | None = None,
    ) -> Outcome:
        """PASS, FAIL or INCONCLUSIVE on `given`.

        redraw: other inputs of the same regime, which show how large the original's own error can be. overflows: sums
        of these finite inputs may overflow. other_layout: strides, sizes or dtypes are not the site's, so that a
        documented limit of the op is no defect. replacement: called in place of the trial's.
        """
        try:
            expected, kept = call_on_copies(self.original, given)
        except USER_CODE_ERRORS:
            return Outcome(Verdict.INCONCLUSIVE, "the original raises", raised=True)
        try:
            actual, mine = call_on_copies(replacement or self.replacement, given)
        except USER_CODE_ERRORS as error:
            if other_layout and isinstance(error, MisuseError):
                return Outcome(Verdict.INCONCLUSIVE, one_line(error))
            return Outcome(Verdict.FAIL, f"the replacement raised {one_line(error)}")
        if not mine and kept:
            return Outcome(Verdict.FAIL, "the replacement writes to its inputs")
        if other_layout and dtypes_of(expected) != dtypes_of(actual):
            return Outcome(Verdict.INCONCLUSIVE, "the outputs' dtypes differ for another input dtype")
        if shows_equality(expected, actual):
            return Outcome(Verdict.PASS, "the same bits")
        try:
            reference = run_float64(self.original, [clone(value) for value in given])
        except USER_CODE_ERRORS:
            return Outcome(Verdict.INCONCLUSIVE, "the original raises in float64", raised=True)
        return self._judge(given, (expected, actual, reference), redraw, overflows)

    def gradients(self, given: Sequence[Any], redraw: Redraw) -> Outcome:
        """The same of the gradients of all floating inputs, by one cotangent of the outputs."""
        try:
            expected = gradients(self.original, *given)
            reference = run_float64(partial(gradients, self.original), list(map(clone, given)))
        except USER_CODE_ERRORS as error:
            return Outcome(
                Verdict.INCONCLUSIVE, f"the original has no gradient: {one_line(error)}", raised=True
            )
        try:
            actual = gradients(self.replacement, *given)
        except USER_CODE_ERRORS as error:
            return Outcome(Verdict.FAIL, f"the replacement has no gradient: {one_line(error)}")
        backward = Trial(
            partial(gradients, self.original), partial(gradients, self.replacement), self.compare
        )
        return backward._judge(given, (expected, actual, reference), redraw, False)

    def _judge(
        self, given: Sequence[Any], three: tuple[Any, Any, Any], redraw: Redraw, overflows: bool
    ) -> Outcome:
        """Compare; where errors are too large, once more against the worst that the original shows in other draws."""
        judged, wrong = self._without_free(given, three, overflows)
        if wrong:
            return Outcome(Verdict.FAIL, wrong, results=three[:2])
        comparison = self.compare(*judged[:2], reference=judged[2], report=False)
        if comparison.verdict is Verdict.FAIL:
            known = self._original_ulps(redraw, overflows)
            comparison = self.compare(*judged[:2], reference=judged[2], original_ulps=known, report=False)
        return Outcome(comparison.verdict, comparison.reason, results=three[:2])

    def _without_free(
        self, given: Sequence[Any], three: tuple[Any, Any, Any], overflows: bool
    ) -> tuple[tuple[Any, Any, Any], str]:
        """Expected, actual and reference without what no replacement is judged by, and what is certainly wrong."""
        leaves = [tree_leaves(tree) for tree in three]
        if len({len(side) for side in leaves}) != 1:
            return three, ""
        are_finite = all(map(finite, given))
        masked = [comparable((a, b, c), are_finite, overflows) for a, b, c in zip(*leaves, strict=True)]
        wrong = next((message for _, message in masked if message), "")
        expected, actual, reference = (tuple(each[side] for each, _ in masked) for side in range(3))
        return (expected, actual, reference), wrong

    def _original_ulps(self, redraw: Redraw, overflows: bool) -> Mapping[str, tuple[float, float]]:
        """The largest errors of the original over several draws, by output name."""
        comparisons = []
        for _ in range(_REDRAWS):
            given = redraw()
            try:
                expected, _kept = call_on_copies(self.original, given)
                reference = run_float64(self.original, [clone(value) for value in given])
            except USER_CODE_ERRORS:
                continue
            (left, _right, truth), _wrong = self._without_free(
                given, (expected, expected, reference), overflows
            )
            comparisons.append(self.compare(left, left, reference=truth, report=False))
        return worst_original(comparisons)
