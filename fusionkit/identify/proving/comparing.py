"""The verdict on one run: structure, shapes and dtypes first, then numbers against the float64 reference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fusionkit.errors import MisuseError
from fusionkit.identify.proving.gradients import CANCELLED, ELEMENTS, cancelled, refusal, relative_errors
from fusionkit.identify.proving.planning import Planned
from fusionkit.identify.proving.proof import Figures, Run
from fusionkit.identify.proving.running import Precision, Sides
from fusionkit.numeric import Comparison, Tolerance, compare_outputs
from fusionkit.numeric.comparison import join
from fusionkit.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Ran:
    """One run before its verdict."""

    planned: Planned
    precision: Precision
    sides: Sides


def judge_runs(ran: Sequence[Ran]) -> list[Run]:
    """The runs with their verdicts. The original's error counts as large as it is in any run of the same precision."""
    measured = [_compare(item, {}, {}) for item in ran]
    known: dict[str, dict[str, tuple[float, float]]] = {}
    whole: dict[str, dict[str, float]] = {}
    for item, comparison in zip(ran, measured, strict=True):
        held = known.setdefault(str(item.precision), {})
        for output in comparison.outputs if comparison else ():
            mean, largest = held.get(output.name, (0.0, 0.0))
            held[output.name] = (
                max(mean, _number(output.original_mean_ulps)),
                max(largest, _number(output.original_max_ulps)),
            )
        of_all = whole.setdefault(str(item.precision), {})
        for name, error in relative_errors(item.sides.expected, item.sides.reference).items():
            of_all[name] = max(error, of_all.get(name, 0.0)) if error < CANCELLED else of_all.get(name, 0.0)
    return [
        _run(item, _compare(item, known[str(item.precision)], whole[str(item.precision)])) for item in ran
    ]


def _compare(
    item: Ran, known: Mapping[str, tuple[float, float]], whole: Mapping[str, float]
) -> Comparison | None:
    """None where a side did not run."""
    sides = item.sides
    if sides.broken or sides.impossible:
        return None
    noisy = cancelled(sides.expected, sides.actual, sides.reference)
    failed = [why for why in noisy.values() if why]
    if failed:
        return Comparison("", Verdict.FAIL, failed[0])
    expected, actual = (
        {n: v for n, v in part.items() if n not in noisy} for part in (sides.expected, sides.actual)
    )
    try:
        told = _by_kind(expected, actual, sides.reference, known)
    except MisuseError as error:
        return Comparison("", Verdict.INCONCLUSIVE, str(error))
    off = refusal(expected, actual, sides.reference, whole) if told.verdict is Verdict.PASS else ""
    return replace(told, verdict=Verdict.FAIL, reason=off) if off else told


def _by_kind(
    expected: Mapping[str, Any],
    actual: Mapping[str, Any],
    reference: Mapping[str, Any] | None,
    known: Mapping[str, tuple[float, float]],
) -> Comparison:
    """Outputs and gradients, each held to its own tolerance."""
    compared: list[Comparison] = []
    for gradients, tolerance in ((False, Tolerance()), (True, ELEMENTS)):
        mine, theirs = (
            {n: v for n, v in side.items() if n.startswith("gradient") is gradients}
            for side in (expected, actual)
        )
        truth = None if reference is None else {n: reference.get(n) for n in mine}
        if mine or theirs:
            told = compare_outputs(
                mine, theirs, reference=truth, tolerance=tolerance, name="", original_ulps=known
            )
            compared += told.outputs or (told,)
    return join("", compared)


def _run(item: Ran, comparison: Comparison | None) -> Run:
    sides, planned = item.sides, item.planned
    verdict, reason = _verdict(sides, comparison)
    if verdict is Verdict.FAIL and planned.guessed:
        verdict, reason = Verdict.INCONCLUSIVE, f"with a guessed {planned.guessed[0]} {reason}"
    return Run(
        verdict=verdict,
        reason="; ".join([reason.replace("['", "").replace("']", ""), *sides.remarks]),
        dtype=str(item.precision.dtype).removeprefix("torch."),
        autocast=item.precision.autocast,
        training=sides.training,
        case=f"{planned.case.name}, {planned.setting.sizes}",
        shapes=_shapes(planned.arguments),
        output_dtypes=_dtypes(sides.outputs[0]),
        replaced_dtypes=_dtypes(sides.outputs[1]),
        not_returned=sides.not_returned,
        fused_calls=sides.fused_calls,
        figures=None if comparison is None else _figures(comparison),
    )


def _verdict(sides: Sides, comparison: Comparison | None) -> tuple[Verdict, str]:
    if sides.broken:
        return Verdict.FAIL, sides.broken
    if comparison is None:
        return Verdict.INCONCLUSIVE, sides.impossible
    if comparison.verdict is Verdict.PASS and sides.unseen:
        return Verdict.INCONCLUSIVE, sides.unseen
    if comparison.verdict is Verdict.PASS and not any(map(_carries_numbers, sides.expected.values())):
        return (
            Verdict.INCONCLUSIVE,
            "no floating output was compared: equal whole numbers say nothing of rounding",
        )
    return comparison.verdict, comparison.reason


def _carries_numbers(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _figures(comparison: Comparison) -> Figures:
    outputs = comparison.outputs or (comparison,)
    worst = max(
        outputs, key=lambda output: _number(output.max_ulps) / (_number(output.max_limit_ulps) or 1.0)
    )
    return Figures(
        outputs=len(outputs),
        elements=sum(output.elements for output in outputs),
        max_ulps=_measured(worst.max_ulps),
        original_max_ulps=_measured(worst.original_max_ulps),
        max_limit_ulps=_measured(worst.max_limit_ulps),
        mean_ulps=_measured(worst.mean_ulps),
        mean_limit_ulps=_measured(worst.mean_limit_ulps),
        min_cosine=_measured(comparison.min_cosine),
        max_abs=_measured(comparison.max_abs),
        bit_equal=comparison.bit_equal,
    )


def _shapes(arguments: Mapping[str, Any]) -> dict[str, list[int]]:
    return {name: list(v.shape) for name, v in arguments.items() if isinstance(v, torch.Tensor)}


def _dtypes(outputs: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(getattr(v, "dtype", type(v).__name__)).removeprefix("torch.") for v in outputs.values())


def _measured(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: float) -> float:
    return value if math.isfinite(value) else 0.0
