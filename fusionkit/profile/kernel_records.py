"""Kernel records and profiles, independent of file formats and torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fusionkit.encoding import Result
from fusionkit.errors import MisuseError

CPU_CORE = "CPU"
"""Accelerator Core of rows measured on a CPU; not torch_npu's `AI_CPU`."""

CPU_NOTE = "measured on CPU: kernel counts are valid, durations are not NPU times"
"""Shown with every CPU profile."""

Source = Literal["npu", "cpu"]


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One kernel launch: one row of kernel_details.csv.

    Times are microseconds; None where the row has none (`N/A`, empty, column absent). `type` is the operator
    type (`RmsNorm`), taken from `name` where the file gives none. Shapes are one string per operand
    (`"4096,1,1024"`, `""` for a scalar), dtypes and formats in the profiler's words (`DT_BF16`, `ND`).
    `line` is the physical line of the file (1-based; 0 for a record that comes from no file).
    """

    name: str
    type: str
    core: str
    duration_us: float
    start_us: float | None = None
    wait_us: float | None = None
    step: str | None = None
    stream: str | None = None
    device: str | None = None
    input_shapes: tuple[str, ...] = ()
    input_dtypes: tuple[str, ...] = ()
    input_formats: tuple[str, ...] = ()
    output_shapes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    output_formats: tuple[str, ...] = ()
    line: int = 0

    @property
    def key(self) -> str:
        """Key for comparing two profiles: the type; on a CPU the name of the op.

        On a CPU `aten::gelu` and `npu::npu_gelu` both have the type `Gelu`, so only the name
        distinguishes fused from unfused. The in-place variant (`aten::add_`) is the same kernel as `aten::add`, except for
        `aten::copy_`.
        """
        if self.core != CPU_CORE:
            return self.type
        return self.name if self.name == "aten::copy_" else self.name.rstrip("_")


@dataclass(frozen=True, slots=True)
class Problem(Result, without=("left_out",)):
    """A row that could not be read completely. `left_out`: it gave no record."""

    line: int
    what: str
    left_out: bool = False


@dataclass(frozen=True, slots=True)
class Profile:
    """The kernels of one profiled run, in time order (file order where there is no start time).

    `source` is "cpu" for rows measured on a CPU, whose durations are not NPU times. `has_types` is
    False when no row gave a type (Level0 files), so that all types come from names.
    """

    records: tuple[KernelRecord, ...]
    problems: tuple[Problem, ...]
    path: Path
    source: Source
    has_types: bool

    @property
    def total_us(self) -> float:
        """Sum of all durations in us, communication included; overlapping streams are added, not merged."""
        return sum_us(record.duration_us for record in self.records)

    @property
    def left_out(self) -> int:
        """Number of rows that gave no record."""
        return sum(problem.left_out for problem in self.problems)

    @property
    def steps(self) -> tuple[str, ...]:
        """Step ids that occur, in order of appearance."""
        return tuple(dict.fromkeys(record.step for record in self.records if record.step is not None))

    @property
    def note(self) -> str | None:
        """Remarks to show with the profile; None without any."""
        notes = [CPU_NOTE] if self.source == "cpu" else []
        if self.left_out:
            notes.append(f"{self.left_out} rows could not be read")
        return "; ".join(notes) or None

    def by_type(self) -> dict[str, tuple[int, float]]:
        """Count and total us per type, in order of the type's name."""
        times: dict[str, list[float]] = {}
        for record in self.records:
            times.setdefault(record.type, []).append(record.duration_us)
        return {kind: (len(times[kind]), sum_us(times[kind])) for kind in sorted(times)}

    def to_dict(self) -> dict[str, Any]:
        """The result of `kernels load` as plain JSON: times in us, problems with their line."""
        return {
            "schema": "fusionkit.kernels-load/1",
            "rows": len(self.records),
            "total_us": self.total_us,
            "by_type": {kind: {"count": count, "us": us} for kind, (count, us) in self.by_type().items()},
            "problems": [problem.to_dict() for problem in self.problems],
            "source": self.source,
            "note": self.note,
        }


def sum_us(values: Any) -> float:
    """Exact sum of us values, rounded to a picosecond, independent of the order."""
    return round(math.fsum(values), 6)


def require_same_source(baseline: Profile, candidate: Profile) -> None:
    """Raise MisuseError if one profile is from an NPU and the other from a CPU."""
    if baseline.records and candidate.records and baseline.source != candidate.source:
        raise MisuseError(
            f"{baseline.path} was measured on {baseline.source} and {candidate.path} on {candidate.source}: "
            "collect both on the same target"
        )


def pair_note(baseline: Profile, candidate: Profile) -> str | None:
    """Remarks to show with two compared profiles; None without any."""
    notes = [CPU_NOTE] if "cpu" in (baseline.source, candidate.source) else []
    for side, profile in (("baseline", baseline), ("candidate", candidate)):
        if profile.left_out:
            notes.append(f"{profile.left_out} rows of the {side} could not be read")
    return "; ".join(notes) or None
