"""The result of a counterexample search: what was exercised, and the input on which the two computations differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fusionkit.encoding import Result
from fusionkit.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Counterexample(Result, without=("inputs",)):
    """An input on which the two differ. `row`: of the output flattened to (rows, last dim); the values are that row's."""

    argument: str
    regime: str
    row: int
    expected: tuple[float, ...]
    actual: tuple[float, ...]
    reason: str
    inputs: tuple[Any, ...] = field(repr=False, compare=False)

    def __str__(self) -> str:
        values = f"expected {_few(self.expected)}, actual {_few(self.actual)}"
        return f"{self.argument}, {self.regime}: {self.reason} (row {self.row}: {values})"


@dataclass(frozen=True, slots=True)
class Search(Result):
    """`exercised`: kind (arguments, regimes, bounds, sizes, strides, calls) -> what was judged; `not_exercised`: the rest."""

    verdict: Verdict
    reason: str
    exercised: Mapping[str, tuple[str, ...]]
    not_exercised: tuple[str, ...]
    counterexample: Counterexample | None = None

    def __bool__(self) -> bool:
        """Whether the verdict is PASS."""
        return bool(self.verdict)


def _few(values: Sequence[float]) -> str:
    return "[" + ", ".join(f"{value:.4g}" for value in values) + "]" if values else "nothing"
