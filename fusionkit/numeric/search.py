"""Search for an input on which a replacement is wrong: values, arguments, repetition, layouts and sizes.

The search is directed and bounded: the regimes of a table for each argument alone and for all together, then both sides
of every bound that only one of the two computations has, then repeated calls, strides and sizes. The same seed draws
the same inputs. It ends at the first input that shows a difference.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from fusionkit.errors import USER_CODE_ERRORS, MisuseError
from fusionkit.numeric.bounds import Bound, alone, bounds_of, sides_reached, trace, unreached
from fusionkit.numeric.compare import compare_outputs
from fusionkit.numeric.comparison import Comparison
from fusionkit.numeric.counterexample import Counterexample, Search
from fusionkit.numeric.figures import has_values
from fusionkit.numeric.judging import (
    aliased_inputs,
    call_on_copies,
    comparable,
    constant,
    dtypes_of,
    one_line,
    same_bits,
    worst_row,
)
from fusionkit.numeric.layouts import in_float32, other_sizes, other_strides
from fusionkit.numeric.reference import run_float64
from fusionkit.numeric.regimes import LARGEST, REGIMES, REQUIRED, indices, masks, near, times
from fusionkit.numeric.samples import clone
from fusionkit.verdict import Verdict

_ATTEMPTS = 3
"""Draws of one regime before it counts as not exercised, where the original raises."""
_FACTORS = tuple(10.0**exponent for exponent in range(9))


class _DifferenceError(Exception):
    """Ends the search."""

    def __init__(self, counterexample: Counterexample) -> None:
        super().__init__()
        self.counterexample = counterexample


def search_counterexample(
    original: Callable[..., Any],
    replacement: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    seed: int,
    names: Sequence[str] | None = None,
    compare: Callable[..., Comparison] | None = None,
) -> Search:
    """Look for an input on which `replacement(*inputs)` and `original(*inputs)` differ beyond the tolerance.

    inputs: tensors with values, which give shapes, dtypes and strides, and literals, which stay as they are.
    names: of the inputs. compare: `compare_outputs` with its options. FAIL has a counterexample. INCONCLUSIVE: a
    required regime could not be judged for an argument, or a bound of one computation alone was not reached on both
    sides.
    """
    return _Search(original, replacement, inputs, seed, names, compare or compare_outputs).run()


class _Search:
    def __init__(
        self,
        original: Callable[..., Any],
        replacement: Callable[..., Any],
        inputs: Sequence[Any],
        seed: int,
        names: Sequence[str] | None,
        compare: Callable[..., Comparison],
    ) -> None:
        self.original, self.replacement, self.compare = original, replacement, compare
        self.inputs = [clone(value) for value in inputs]
        self.names = list(names or (f"argument {index}" for index in range(len(inputs))))
        self.generator = torch.Generator().manual_seed(seed)
        self.tensors = [i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
        self.floating = [i for i in self.tensors if self.inputs[i].is_floating_point()]
        self.judged: dict[str, dict[str, None]] = {}  # kind -> what was judged, in order
        self.passed_by: dict[str, None] = {}
        self.required: set[tuple[str, str]] = set()
        self.reached: dict[Bound, set[str]] = {}
        self.graphs = [trace(fn, self.inputs) for fn in (original, replacement)]
        self.bounds = [bounds_of(graph) for graph in self.graphs]

    def run(self) -> Search:
        if not all(has_values(self.inputs[i]) for i in self.tensors):
            return self._result(Verdict.INCONCLUSIVE, "fake or meta inputs carry no values")
        try:
            self._judge("the site's own", "own values", self.inputs)
            self._values()
            self._bounds()
            self._calls()
            self._layouts()
        except _DifferenceError as difference:
            return self._result(Verdict.FAIL, str(difference.counterexample), difference.counterexample)
        return self._verdict()

    def _values(self) -> None:
        """Every regime for each argument alone, then for all floating arguments together."""
        bounds = dict.fromkeys(bound.value for bounds in self.bounds for bound in bounds)
        regimes = [*REGIMES, *(near(value) for value in bounds if value)]
        together = [("all arguments", self.floating)] if len(self.floating) > 1 else []
        for label, chosen in [*((self.names[i], [i]) for i in self.floating), *together]:
            for regime in regimes:
                drawn = self._try(label, regime.name, partial(self._drawn, regime.draw), chosen)
                if drawn and regime.name in REQUIRED:
                    self.required.add((label, regime.name))
        for index in self.tensors:
            own = self.inputs[index]
            if index in self.floating or own.is_complex():
                continue
            for name, value in (masks if own.dtype is torch.bool else indices)(own, self.generator):
                self._try(self.names[index], name, partial(constant, value), [index])
                others = f"{self.names[index]} and all others"
                self._try(others, name, self._beside(index, value), self.tensors)

    def _beside(self, index: int, value: torch.Tensor) -> Callable[[int], torch.Tensor]:
        """Draws `value` for one argument and normal values for the floating ones."""

        def draw(i: int) -> torch.Tensor:
            if i == index:
                return value
            return REGIMES[0].draw(self.inputs[i], self.generator) if i in self.floating else self.inputs[i]

        return draw

    def _bounds(self) -> None:
        """Scale the arguments until both sides of each bound are reached."""
        choices = [*((self.names[i], [i]) for i in self.floating), ("all arguments", self.floating)]
        for bound in (*alone(*self.bounds), *alone(*reversed(self.bounds))):
            for factor in _FACTORS:
                for label, chosen in choices:
                    if len(self.reached.get(bound, ())) == 2:
                        break
                    draw = times(factor).draw
                    self._try(
                        label, f"scaled by {factor:g} to reach {bound}", partial(self._drawn, draw), chosen
                    )

    def _drawn(self, draw: Callable[..., torch.Tensor], index: int) -> torch.Tensor:
        return draw(self.inputs[index], self.generator)

    def _calls(self) -> None:
        """Repeated calls, calls on other arguments in between, traced calls, outputs that alias inputs."""
        first = [clone(value) for value in self.inputs]
        second = list(first)
        for index in self.floating:
            second[index] = REGIMES[0].draw(first[index], self.generator)
        for label, given in (("first call", first), ("other values", second), ("first values again", first)):
            self._judge("all arguments", label, given, kind="calls")
        with torch.no_grad():
            again = [self.replacement(*map(clone, first)) for _ in range(2)]
        if not same_bits(*again):
            self._fail("all arguments", "the same call twice", first, "the results differ from call to call")
        shared = aliased_inputs(self.replacement, first) - aliased_inputs(self.original, first)
        for index in sorted(shared):
            self._fail(self.names[index], "its own values", first, "an output shares its memory")
        if (graph := self.graphs[1]) is not None:
            self._judge("all arguments", "traced against called", second, kind="calls", replacement=graph)

    def _layouts(self) -> None:
        """Other strides; other sizes and float32 where the original accepts them."""
        others = (
            other_strides(self.inputs),
            other_sizes(self.inputs, self.generator),
            in_float32(self.inputs, self.generator),
        )
        for name, given in itertools.chain(*others):
            self._judge("all arguments", name, given, kind="layouts")

    def _try(
        self, label: str, regime: str, draw: Callable[[int], torch.Tensor], chosen: Sequence[int]
    ) -> bool:
        """Judge one drawn input; drawn again where the original raises."""
        for _ in range(_ATTEMPTS):
            given = [draw(i) if i in chosen else value for i, value in enumerate(self.inputs)]
            judged = self._judge(label, regime, given)
            if judged is not None:
                return judged
        return False

    @torch.no_grad()
    def _judge(
        self,
        label: str,
        regime: str,
        given: Sequence[Any],
        *,
        kind: str = "regimes",
        replacement: Callable[..., Any] | None = None,
    ) -> bool | None:
        """Whether the outputs could be judged; None where the original raises. Raises _DifferenceError at a difference."""
        try:
            expected, kept = call_on_copies(self.original, given)
            reference = run_float64(self.original, [clone(value) for value in given])
        except USER_CODE_ERRORS:
            return self._pass_by(f"{label}, {regime}: the original raises")
        try:
            actual, mine = call_on_copies(replacement or self.replacement, given)
        except USER_CODE_ERRORS as error:
            # a documented limit of the op: no such site is a hit
            if kind == "layouts" and isinstance(error, MisuseError):
                return self._pass_by(f"{regime}: {one_line(error)}")
            self._fail(label, regime, given, f"the replacement raised {one_line(error)}")
        if not mine and kept:
            self._fail(label, regime, given, "the replacement writes to its inputs")
        if kind == "layouts" and dtypes_of(expected) != dtypes_of(actual):
            return self._pass_by(
                f"{regime}: the dtypes of the outputs differ, by casts for another input dtype"
            )
        verdict, reason = self._compared(given, expected, actual, reference, regime == LARGEST)
        if verdict is Verdict.FAIL:
            self._fail(label, regime, given, reason, (expected, actual))
        self._watch(given)
        if verdict is Verdict.INCONCLUSIVE:
            self.passed_by.setdefault(f"{label}, {regime}: {reason}")
            return False
        self.judged.setdefault("arguments", {})[label] = None
        self.judged.setdefault(kind, {})[regime] = None
        self.passed_by.pop(f"{label}, {regime}: the original raises", None)
        return True

    def _pass_by(self, line: str) -> bool | None:
        """Note what was not exercised; gives None."""
        self.passed_by.setdefault(line)
        return None

    def _compared(
        self, given: Sequence[Any], expected: Any, actual: Any, reference: Any, overflows: bool
    ) -> tuple[Verdict, str]:
        """The comparison, with what cannot be held against a replacement taken out of all three."""
        finite = all(bool(given[index].isfinite().all()) for index in self.floating)
        leaves = [tree_leaves(tree) for tree in (expected, actual, reference)]
        if len({len(side) for side in leaves}) == 1:
            masked = [comparable((a, b, c), finite, overflows) for a, b, c in zip(*leaves, strict=True)]
            for wrong in (message for _, message in masked if message):
                return Verdict.FAIL, wrong
            expected, actual, reference = (tuple(three[side] for three, _ in masked) for side in range(3))
        comparison = self.compare(expected, actual, reference=reference)
        return comparison.verdict, comparison.reason

    def _watch(self, given: Sequence[Any]) -> None:
        """Note which sides of the bounds this input reaches; inputs of other shapes do not fit the graphs."""
        for graph, bounds in zip(self.graphs, self.bounds, strict=True):
            if graph is None or not bounds:
                continue
            try:
                reached = sides_reached(graph, bounds, [clone(value) for value in given])
            except USER_CODE_ERRORS:
                continue
            for bound, sides in reached.items():
                self.reached.setdefault(bound, set()).update(sides)

    def _fail(
        self, label: str, regime: str, given: Sequence[Any], reason: str, results: tuple[Any, ...] = ((), ())
    ) -> None:
        row, left, right = worst_row(*results)
        inputs = tuple(clone(value) for value in given)
        raise _DifferenceError(Counterexample(label, regime, row, left, right, reason, inputs))

    def _verdict(self) -> Search:
        lacking = [
            f"{self.names[index]}, {regime}"
            for index in self.floating
            for regime in REQUIRED
            if (self.names[index], regime) not in self.required
        ]
        if lacking:
            return self._result(Verdict.INCONCLUSIVE, f"not judged: {lacking[0]}")
        for index, graph in enumerate(self.graphs):
            lone = alone(self.bounds[index], self.bounds[1 - index])
            for bound, side, possible in unreached(graph, lone, self.reached):
                self.passed_by.setdefault(f"{bound}: no value {side} it")
                if possible:
                    reason = f"{bound} stands in one side alone; no value {side} it"
                    return self._result(Verdict.INCONCLUSIVE, reason)
        counts = (
            f"{len(self.judged['regimes'])} kinds of inputs for {len(self.judged['arguments'])} arguments"
        )
        return self._result(Verdict.PASS, f"no counterexample in {counts}")

    def _result(self, verdict: Verdict, reason: str, counterexample: Counterexample | None = None) -> Search:
        bounds = tuple(
            f"{bound}: {' and '.join(sorted(sides))}" for bound, sides in self.reached.items() if sides
        )
        exercised = {kind: tuple(names) for kind, names in self.judged.items()}
        if bounds:
            exercised["bounds"] = tuple(dict.fromkeys(bounds))
        return Search(verdict, reason, exercised, tuple(self.passed_by), counterexample)
