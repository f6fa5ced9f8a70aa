"""The result of a proof: what was run, with which figures, and the verdict over all runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fusionkit.identify.proving.traffic import Traffic
from fusionkit.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Figures:
    """How near the replaced code comes to a float64 run of the original: the worst over outputs and gradients.

    Errors in ulps of the output's dtype (see numeric.tolerance); `max_abs`: largest difference between both sides.
    None stands for "not measured".
    """

    outputs: int
    elements: int
    max_ulps: float | None
    original_max_ulps: float | None
    max_limit_ulps: float | None
    mean_ulps: float | None
    mean_limit_ulps: float | None
    min_cosine: float | None
    max_abs: float | None
    bit_equal: bool | None


@dataclass(frozen=True, slots=True)
class Run:
    """One pair of calls with the same weights and inputs.

    `dtype`: of weights and inputs; `autocast`: under torch.autocast("cpu", bfloat16); `training`: gradients were
    compared too; `shapes`: of the tensor arguments by name; `case`: which optional arguments were given;
    `output_dtypes`, `replaced_dtypes`: of both sides; `not_returned`: outputs that the fused branch declares not
    to return; `fused_calls`: calls of torch_npu that the replaced side made.
    """

    verdict: Verdict
    reason: str
    dtype: str
    autocast: bool
    training: bool
    case: str
    shapes: Mapping[str, list[int]]
    output_dtypes: tuple[str, ...] = ()
    replaced_dtypes: tuple[str, ...] = ()
    not_returned: tuple[str, ...] = ()
    fused_calls: int = 0
    figures: Figures | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        told = asdict(self)
        lists = {name: list(value) for name, value in told.items() if isinstance(value, tuple)}
        return told | lists | {"verdict": str(self.verdict)}


@dataclass(frozen=True, slots=True)
class Proof:
    """Verdict on one replacement. PASS: every run passes; nothing run or compared is INCONCLUSIVE.

    `forced`: which implementations were chosen so that the code in question runs. `traffic`: of the largest passing
    call, in each direction that was run.
    """

    op: str
    file: str
    symbol: str
    verdict: Verdict
    reason: str
    runs: tuple[Run, ...] = ()
    forced: tuple[str, ...] = ()
    seconds: float = 0.0
    traffic: tuple[Traffic, ...] = ()

    def __bool__(self) -> bool:
        """Whether the verdict is PASS."""
        return bool(self.verdict)

    @property
    def worst(self) -> Run | None:
        """The run whose error comes nearest to its limit."""
        measured = [run for run in self.runs if run.figures is not None]
        return max(measured, key=lambda run: severity(run.figures), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types with a schema name."""
        return {
            "schema": "fusionkit.proof/1",
            "op": self.op,
            "file": self.file,
            "symbol": self.symbol,
            "verdict": str(self.verdict),
            "reason": self.reason,
            "forced": list(self.forced),
            "runs": [run.to_dict() for run in self.runs],
            "seconds": self.seconds,
            "traffic": [asdict(item) for item in self.traffic],
        }

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Proof:
        """The proof that `to_dict` told."""
        runs = tuple(_run(run) for run in told["runs"])
        names = {name: told[name] for name in ("op", "file", "symbol", "reason", "seconds")}
        traffic = tuple(Traffic.from_dict(item) for item in told["traffic"])
        verdict, forced = Verdict(told["verdict"]), tuple(told["forced"])
        return cls(verdict=verdict, runs=runs, forced=forced, traffic=traffic, **names)


def severity(figures: Figures | None) -> float:
    """Largest error over its limit; 0 where not measured."""
    if figures is None or not figures.max_ulps or not figures.max_limit_ulps:
        return 0.0
    return figures.max_ulps / figures.max_limit_ulps


def _run(told: Mapping[str, Any]) -> Run:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in told.items()
    }
    figures = None if told["figures"] is None else Figures(**told["figures"])
    return Run(**(values | {"verdict": Verdict(told["verdict"]), "figures": figures}))
