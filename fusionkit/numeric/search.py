"""Search for an input on which a replacement is wrong: values, arguments, repetition, layouts, sizes and gradients.

The search is directed and bounded: the regimes of a table for each argument alone and for all together, then both sides
of every bound that only one of the two computations has, then repeated calls, strides and sizes. The same seed draws
the same inputs. It ends at the first input that shows a difference.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import torch

from fusionkit.numeric.bounds import alone, trace
from fusionkit.numeric.compare import compare_outputs
from fusionkit.numeric.comparison import Comparison
from fusionkit.numeric.counterexample import Counterexample, Search
from fusionkit.numeric.coverage import Coverage
from fusionkit.numeric.figures import has_values
from fusionkit.numeric.judging import aliased_inputs, is_floating, same_bits, worst_row
from fusionkit.numeric.layouts import in_float32, other_sizes, other_strides
from fusionkit.numeric.regimes import LARGEST, REGIMES, REQUIRED, Draw, drawn, indices, masks, near, times
from fusionkit.numeric.samples import clone
from fusionkit.numeric.shrinking import smaller
from fusionkit.numeric.trial import Outcome, Trial
from fusionkit.verdict import Verdict

_ATTEMPTS = 3
"""Draws of one regime before it counts as not exercised, where the original raises."""
_FACTORS = tuple(10.0**exponent for exponent in range(9))
_ALL = "all arguments"
_OWN = "the site's own"


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
    train: bool = False,
    literals: Collection[int] = (),
) -> Search:
    """Look for an input on which `replacement(*inputs)` and `original(*inputs)` differ beyond the tolerance.

    inputs: tensors with values, which give shapes, dtypes and strides, and literals, which stay as they are.
    names: of the inputs. compare: `compare_outputs` with its options. train: compare the gradients of the floating
    inputs too. literals: sizes that the original is a graph for (`size_literals`).
    FAIL has a counterexample. INCONCLUSIVE: a required regime could not be judged for an argument, or a bound of one
    computation alone was not reached on both sides.
    """
    return _Search(
        original, replacement, inputs, seed, names, compare or compare_outputs, train, literals
    ).run()


class _Search:
    def __init__(
        self,
        original: Callable[..., Any],
        replacement: Callable[..., Any],
        inputs: Sequence[Any],
        seed: int,
        names: Sequence[str] | None,
        compare: Callable[..., Comparison],
        train: bool,
        literals: Collection[int],
    ) -> None:
        self.trial, self.train, self.literals = Trial(original, replacement, compare), train, literals
        self.inputs = [clone(value) for value in inputs]
        self.names = list(names or (f"argument {index}" for index in range(len(inputs))))
        self.generator = torch.Generator().manual_seed(seed)
        self.tensors = [i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
        self.floating = [i for i in self.tensors if is_floating(self.inputs[i])]
        graphs = [trace(function, self.inputs) for function in (original, replacement)]
        self.coverage = Coverage(graphs, [self.names[i] for i in self.floating])

    def run(self) -> Search:
        if not all(has_values(self.inputs[i]) for i in self.tensors):
            return self.coverage.result(Verdict.INCONCLUSIVE, "fake or meta inputs carry no values")
        try:
            self._judge(_OWN, "own values", self.inputs)
            self._values()
            self._whole_numbers()
            self._bounds()
            self._calls()
            self._layouts()
            self._gradients()
        except _DifferenceError as difference:
            shown = difference.counterexample
            return self.coverage.result(Verdict.FAIL, str(shown), shown)
        return self.coverage.search()

    def _values(self) -> None:
        """Every regime for each argument alone, then for all floating arguments together."""
        bounds = dict.fromkeys(bound.value for bounds in self.coverage.bounds for bound in bounds)
        regimes = [*REGIMES, *(near(value) for value in bounds if value)]
        for label, chosen in self._choices():
            for regime in regimes:
                self._try(label, regime.name, partial(self._drawn, regime.draw), chosen)

    def _choices(self) -> list[tuple[str, list[int]]]:
        """Each floating argument alone, then all of them."""
        together = [(_ALL, self.floating)] if len(self.floating) > 1 else []
        return [*((self.names[i], [i]) for i in self.floating), *together]

    def _whole_numbers(self) -> None:
        """Masks and indices, alone and with the other arguments drawn too."""
        sizes = [size for i in self.floating for size in self.inputs[i].shape]
        for index in (i for i in self.tensors if i not in self.floating):
            own, name = self.inputs[index], self.names[index]
            drawings = (
                masks(own, self.generator) if own.dtype is torch.bool else indices(own, sizes, self.generator)
            )
            for regime, value in drawings:
                draw = self._beside(index, value)
                self._try(name, regime, draw, [index])
                self._try(f"{name} and all others", regime, draw, self.tensors)

    def _beside(self, index: int, value: torch.Tensor) -> Callable[[int], torch.Tensor]:
        """Draws `value` for one argument and normal values for the floating ones."""

        def draw(i: int) -> torch.Tensor:
            if i == index:
                return value
            return self._drawn(REGIMES[0].draw, i) if i in self.floating else self.inputs[i]

        return draw

    def _bounds(self) -> None:
        """Scale the arguments until both sides of each bound are reached."""
        bounds = self.coverage.bounds
        for bound in (*alone(*bounds), *alone(*reversed(bounds))):
            for factor, (label, chosen) in itertools.product(_FACTORS, self._choices()):
                if self.coverage.is_reached(bound):
                    break
                draw = partial(self._drawn, times(factor).draw)
                self._try(label, f"scaled by {factor:g} to reach {bound}", draw, chosen)

    def _drawn(self, draw: Callable[..., torch.Tensor], index: int) -> torch.Tensor:
        return drawn(draw, self.inputs[index], self.generator)

    def _calls(self) -> None:
        """Repeated calls, calls on other arguments in between, traced calls, outputs that alias inputs."""
        first = [clone(value) for value in self.inputs]
        second = self._normal(first)
        for label, given in (("first call", first), ("other values", second), ("first values again", first)):
            self._judge(_ALL, label, given, kind="calls")
        with torch.no_grad():
            again = [self.trial.replacement(*map(clone, first)) for _ in range(3)]
        if not all(same_bits(again[0], other) for other in again[1:]):
            self._fail(_ALL, "the same call three times", first, "the results differ from call to call")
        shared = aliased_inputs(self.trial.replacement, first) - aliased_inputs(self.trial.original, first)
        for index in sorted(shared):
            self._fail(self.names[index], "its own values", first, "an output shares its memory")
        if (graph := self.coverage.graphs[1]) is not None:
            self._judge(_ALL, "traced against called", second, kind="calls", traced=graph)

    def _layouts(self) -> None:
        """Other strides; other sizes and float32 where the original accepts them."""
        others = (
            other_strides(self.inputs),
            other_sizes(self.inputs, self.generator, self.literals),
            in_float32(self.inputs, self.generator),
        )
        for name, given in itertools.chain(*others):
            self._judge(_ALL, name, given, kind="layouts")

    def _gradients(self) -> None:
        """The gradients on the own values and on normal ones of three sizes."""
        if not self.train:
            return
        normal = [(r.name, self._normal(self.inputs, r.draw)) for r in REGIMES if r.name in REQUIRED]
        for name, given in (("own values", self.inputs), *normal):
            outcome = self.trial.gradients(given, partial(self._normal, given))
            self._note(_ALL, f"gradients, {name}", given, "gradients", outcome)

    def _normal(self, given: Sequence[Any], draw: Draw = REGIMES[0].draw) -> list[Any]:
        """Drawn values for the floating inputs, in the layout of `given`; normal ones where nothing else is said."""
        return [drawn(draw, value, self.generator) if is_floating(value) else value for value in given]

    def _try(
        self, label: str, regime: str, draw: Callable[[int], torch.Tensor], chosen: Sequence[int]
    ) -> None:
        """Judge one drawn input; drawn again where the original raises."""

        def inputs() -> list[Any]:
            return [draw(i) if i in chosen else value for i, value in enumerate(self.inputs)]

        for _ in range(_ATTEMPTS):
            outcome = self._judge(label, regime, inputs(), redraw=inputs)
            if not outcome.raised:
                return

    def _judge(
        self,
        label: str,
        regime: str,
        given: Sequence[Any],
        *,
        kind: str = "regimes",
        redraw: Callable[[], Sequence[Any]] | None = None,
        traced: Callable[..., Any] | None = None,
    ) -> Outcome:
        """Try one input and note the outcome. Raises _DifferenceError at a difference."""
        judge = partial(
            self.trial,
            redraw=redraw or partial(self._normal, given),
            overflows=regime == LARGEST,
            other_layout=kind == "layouts",
            replacement=traced,
        )
        outcome = judge(given)
        self._note(label, regime, given, kind, outcome, judge)
        if kind != "layouts":  # the graphs are of the site's own sizes
            self.coverage.watch(given)
        return outcome

    def _note(
        self,
        label: str,
        regime: str,
        given: Sequence[Any],
        kind: str,
        outcome: Outcome,
        judge: Callable[[Sequence[Any]], Outcome] | None = None,
    ) -> None:
        if outcome.verdict is Verdict.FAIL:
            self._fail(label, regime, given, outcome.reason, outcome.results, judge)
        self.coverage.note(label, regime, kind, outcome)

    def _fail(
        self,
        label: str,
        regime: str,
        given: Sequence[Any],
        reason: str,
        results: tuple[Any, ...] = ((), ()),
        judge: Callable[[Sequence[Any]], Outcome] | None = None,
    ) -> None:
        """End the search with the input, made smaller where `judge` still refuses the smaller one."""
        if judge is not None:
            given, outcome = smaller(given, judge)
            if outcome is not None:
                reason, results = outcome.reason, outcome.results
        row, left, right = worst_row(*results)
        inputs = tuple(clone(value) for value in given)
        raise _DifferenceError(
            Counterexample(label, regime, row, left, right, reason, tuple(self.names), inputs)
        )
