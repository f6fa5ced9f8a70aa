"""What a counterexample search exercised, and the verdict that this allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch.fx

from fusionkit.errors import USER_CODE_ERRORS
from fusionkit.numeric.bounds import Bound, alone, bounds_of, sides_reached, unreached
from fusionkit.numeric.counterexample import Counterexample, Search
from fusionkit.numeric.regimes import REQUIRED
from fusionkit.numeric.samples import clone
from fusionkit.numeric.trial import Outcome
from fusionkit.verdict import Verdict


class Coverage:
    """Filled by the search: what was judged, what was passed by and why, and the sides of bounds that values reached.

    `graphs`: of original and replacement, None where one cannot be traced; `floating`: names of the floating inputs.
    """

    def __init__(self, graphs: Sequence[torch.fx.GraphModule | None], floating: Sequence[str]) -> None:
        self.graphs, self.floating = graphs, floating
        self.bounds = [bounds_of(graph) for graph in graphs]
        self._judged: dict[str, dict[str, None]] = {}  # kind -> names, in order
        self._passed_by: dict[str, None] = {}
        self._required: set[tuple[str, str]] = set()
        self._reached: dict[Bound, set[str]] = {}

    def note(self, label: str, regime: str, kind: str, outcome: Outcome) -> None:
        """Note the outcome of one trial that shows no difference."""
        raises = f"{label}, {regime}: the original raises"
        if outcome.verdict is Verdict.INCONCLUSIVE:
            why = outcome.reason.rpartition("]: ")[2]  # without the output's name
            self._passed_by.setdefault(raises if outcome.raised else f"{label}, {regime}: {why}")
            return
        self._judged.setdefault("arguments", {})[label] = None
        self._judged.setdefault(kind, {})[regime] = None
        self._passed_by.pop(raises, None)
        if regime in REQUIRED:
            self._required.add((label, regime))

    def watch(self, given: Sequence[Any]) -> None:
        """Note which sides of the bounds an input of the site's own sizes reaches, as long as one is not reached."""
        for graph, every in zip(self.graphs, self.bounds, strict=True):
            bounds = [bound for bound in every if not self.is_reached(bound)]
            if graph is None or not bounds:
                continue
            try:
                reached = sides_reached(graph, bounds, [clone(value) for value in given])
            except USER_CODE_ERRORS:
                continue
            for bound, sides in reached.items():
                self._reached.setdefault(bound, set()).update(sides)

    def is_reached(self, bound: Bound) -> bool:
        """Whether values on both sides were seen."""
        return len(self._reached.get(bound, ())) == 2

    def search(self) -> Search:
        """The result of a search that saw no difference: PASS, or INCONCLUSIVE with what is lacking."""
        lacking = next(self._lacking(), "")
        if lacking:
            return self.result(Verdict.INCONCLUSIVE, lacking)
        regimes, arguments = (len(self._judged[kind]) for kind in ("regimes", "arguments"))
        return self.result(
            Verdict.PASS, f"no counterexample in {regimes} kinds of inputs for {arguments} arguments"
        )

    def _lacking(self) -> Iterator[str]:
        for name in self.floating:
            yield from (
                f"not judged: {name}, {regime}" for regime in REQUIRED if (name, regime) not in self._required
            )
        if not self._judged.get("regimes"):
            yield next(iter(self._passed_by), "nothing was judged")
        for index, graph in enumerate(self.graphs):
            lone = alone(self.bounds[index], self.bounds[1 - index])
            for bound, side, possible in unreached(graph, lone, self._reached):
                self._passed_by.setdefault(f"{bound}: no value {side} it")
                if possible:
                    yield f"{bound} stands in one side alone; no value {side} it"

    def result(self, verdict: Verdict, reason: str, counterexample: Counterexample | None = None) -> Search:
        """The result with what was exercised up to now."""
        bounds = [
            f"{bound}: {' and '.join(sorted(sides))}" for bound, sides in self._reached.items() if sides
        ]
        exercised = {kind: tuple(names) for kind, names in self._judged.items()}
        if bounds:
            exercised["bounds"] = tuple(dict.fromkeys(bounds))
        return Search(verdict, reason, exercised, tuple(self._passed_by), counterexample)
