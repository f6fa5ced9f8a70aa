"""The result of a comparison: one record per output, and the record of several outputs together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from fusionkit.encoding import Result
from fusionkit.verdict import Verdict, combine

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Comparison(Result, schema=1):
    """Verdict on one output, or on several (`outputs`; the figures are then the worst of them).

    mean_ulps, max_ulps: error of actual against the reference, in ulps of `dtype` (defined in `tolerance`);
    original_*: the same for the original implementation; *_limit_ulps: the limit.
    min_cosine: cosine with the reference of the row that is worst against `cosine_limit`, at `worst_row`;
    original_min_cosine: the original's in that row. judged_rows + negligible_rows = rows.
    max_error, original_max_error: largest absolute difference from the reference.
    max_abs, mean_rel: largest absolute, and sum of absolute over sum of expected's magnitudes, between actual
    and expected. cosine: of actual and expected, flattened; cosine_above_seed_threshold: cosine > 2**-7,
    which almost anything passes. The fields from max_error on are no part of the verdict.
    has_reference: False if expected itself was the reference. NaN means "not measured".
    """

    name: str
    verdict: Verdict
    reason: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    has_reference: bool = False
    elements: int = 0
    mean_ulps: float = NAN
    original_mean_ulps: float = NAN
    mean_limit_ulps: float = NAN
    max_ulps: float = NAN
    original_max_ulps: float = NAN
    max_limit_ulps: float = NAN
    min_cosine: float = NAN
    original_min_cosine: float = NAN
    cosine_limit: float = NAN
    worst_row: int = -1
    judged_rows: int = 0
    negligible_rows: int = 0
    max_error: float = NAN
    original_max_error: float = NAN
    max_abs: float = NAN
    mean_rel: float = NAN
    cosine: float = NAN
    cosine_above_seed_threshold: bool | None = None
    bit_equal: bool | None = None
    nan_count: int = 0
    inf_count: int = 0
    expected_nan_count: int = 0
    expected_inf_count: int = 0
    outputs: tuple[Comparison, ...] = ()

    def __bool__(self) -> bool:
        """Whether the verdict is PASS."""
        return bool(self.verdict)


def join(name: str, outputs: Sequence[Comparison]) -> Comparison:
    """One record for several outputs: combined verdict, reason of the deciding output, worst figures."""
    verdict = combine(output.verdict for output in outputs)
    deciding = [output for output in outputs if output.verdict is verdict]
    if not deciding:
        return Comparison(name, Verdict.INCONCLUSIVE, f"{name}: no output to compare")
    reason = deciding[0].reason
    if verdict is Verdict.PASS and len(outputs) > 1:
        reason = f"{len(outputs)} outputs pass; the largest error: " + max(deciding, key=_severity).reason
    figures: dict[str, Any] = {}
    for field in fields(Comparison):
        values = [value for output in outputs if (value := getattr(output, field.name)) is not None]
        if field.type == "float":
            worst: Any = min if "cosine" in field.name else max
            figures[field.name] = worst((value for value in values if not math.isnan(value)), default=NAN)
        elif field.type == "bool | None":
            figures[field.name] = all(values) if values else None
        elif field.type == "int" and field.name != "worst_row":
            figures[field.name] = sum(values)
    has_reference = any(output.has_reference for output in outputs)
    return Comparison(name, verdict, reason, has_reference=has_reference, outputs=tuple(outputs), **figures)


def _severity(output: Comparison) -> float:
    """Largest error over its limit; 0 where not measured."""
    ratio = output.max_ulps / output.max_limit_ulps if output.max_limit_ulps else NAN
    return 0.0 if math.isnan(ratio) else ratio
