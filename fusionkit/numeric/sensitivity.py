"""The resolution of a gate: the smallest scale defect that it refuses, and the noise of same-seed repeats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fusionkit.encoding import Result
from fusionkit.numeric.compare import compare_outputs
from fusionkit.numeric.tolerance import Tolerance
from fusionkit.verdict import Verdict

SCALES = (1.001, 1.003, 1.01, 1.03, 1.1, 1.3, 2.0)


@dataclass(frozen=True, slots=True)
class ScaleRow:
    """The gate's verdict on outputs computed with the fused ops scaled by `scale`; errors in ulps."""

    scale: float
    verdict: Verdict
    reason: str
    mean_ulps: float
    max_ulps: float


@dataclass(frozen=True, slots=True)
class Sensitivity(Result, schema=1):
    """`smallest`: the smallest scale defect that is refused, as is every larger one tried; None if there is none.

    PASS if there is one; INCONCLUSIVE if there is none, or if the unscaled run itself does not pass.
    """

    verdict: Verdict
    reason: str
    smallest: float | None
    rows: tuple[ScaleRow, ...]

    def __bool__(self) -> bool:
        """Whether the verdict is PASS."""
        return bool(self.verdict)


@dataclass(frozen=True, slots=True)
class NoiseFloor(Result, schema=1):
    """Difference of two runs that should be equal. PASS: bit-equal; INCONCLUSIVE: they differ by max_abs."""

    verdict: Verdict
    reason: str
    bit_equal: bool | None
    max_abs: float

    def __bool__(self) -> bool:
        """Whether the verdict is PASS."""
        return bool(self.verdict)


def _plain(value: Any) -> Any:
    """A JSON value: verdicts as text, floats that are not finite as None."""
    if isinstance(value, Verdict):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def smallest_visible_scale(
    run: Callable[[float], Any],
    expected: Any,
    reference: Any,
    tolerance: Tolerance | None = None,
    scales: Sequence[float] = SCALES,
) -> Sensitivity:
    """Find the smallest scale defect that `compare_outputs(expected, run(scale), reference=...)` refuses.

    `run(scale)` returns the outputs with every fused op's output multiplied by `scale`. It is called with 1.0
    first: a gate that refuses the correct run as well proves nothing by refusing others. Only FAIL counts as
    refused. Conservative: every larger scale tried has to be refused too.
    """
    rows = []
    for scale in (1.0, *sorted(scales)):
        comparison = compare_outputs(expected, run(scale), reference=reference, tolerance=tolerance)
        rows.append(
            ScaleRow(scale, comparison.verdict, comparison.reason, comparison.mean_ulps, comparison.max_ulps)
        )
    if not rows[0].verdict:
        reason = f"the unscaled run is {rows[0].verdict}: {rows[0].reason}"
        return Sensitivity(Verdict.INCONCLUSIVE, reason, None, tuple(rows))
    smallest = None
    for row in reversed(rows[1:]):
        if row.verdict is not Verdict.FAIL:
            break
        smallest = row.scale
    if smallest is None:
        tried = f"up to {rows[-1].scale:g}" if len(rows) > 1 else "(none tried)"
        return Sensitivity(Verdict.INCONCLUSIVE, f"no scale defect {tried} is refused", None, tuple(rows))
    reason = f"a scale defect of {smallest:g} and more is refused"
    return Sensitivity(Verdict.PASS, reason, smallest, tuple(rows))


def noise_floor(run_a: Callable[[], Any], run_b: Callable[[], Any]) -> NoiseFloor:
    """Difference between the outputs of two runs with the same seed, `run_a()` and `run_b()`.

    FAIL where the outputs cannot be compared (structure, shape, dtype), INCONCLUSIVE where there are none.
    """
    comparison = compare_outputs(run_a(), run_b(), name="repeat")
    if comparison.bit_equal is None:
        return NoiseFloor(comparison.verdict, comparison.reason, None, comparison.max_abs)
    if comparison.bit_equal:
        return NoiseFloor(Verdict.PASS, "same-seed repeats are bit-equal", True, comparison.max_abs)
    reason = f"same-seed repeats differ by up to {comparison.max_abs:.4g}; a smaller difference shows nothing"
    return NoiseFloor(Verdict.INCONCLUSIVE, reason, False, comparison.max_abs)
