"""The verdict on one run: structure, shapes and dtypes first, then numbers against the float64 reference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fusionkit.errors import MisuseError
from fusionkit.identify.proving.planning import Planned
from fusionkit.identify.proving.proof import Figures, Run
from fusionkit.identify.proving.running import Precision, Sides
from fusionkit.numeric import Comparison, Tolerance, compare_outputs
from fusionkit.numeric.comparison import join
from fusionkit.verdict import Verdict

CANCELLED = 0.5
"""A gradient of which the original itself gets less than this right is what a cancellation left over."""

NOISE = 8.0
"""Such a gradient may be off by this factor of what the original is off."""


GRADIENTS = Tolerance(k=4.0, min_cosine=0.99)
"""For gradients. They are sums over all rows of which much cancels: between two right implementations the largest
error in bfloat16 differs by more than 2, and the original's own rows have cosines down to 0.999. A defect is thousands
of ulps in the float32 runs, whose limit is no wider for that."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One run before its verdict."""

    planned: Planned
    precision: Precision
    sides: Sides


def judge_runs(ran: Sequence[Ran], asks_torch_npu: bool) -> list[Run]:
    """The runs with their verdicts. The original's error counts as large as it is in any run of the same precision.

    `asks_torch_npu`: whether the replacement calls torch_npu at all, so that a run without a fused call says nothing.
    """
    measured = [_compare(item, {}) for item in ran]
    known: dict[str, dict[str, tuple[float, float]]] = {}
    for item, comparison in zip(ran, measured, strict=True):
        held = known.setdefault(str(item.precision), {})
        for output in comparison.outputs if comparison else ():
            mean, largest = held.get(output.name, (0.0, 0.0))
            held[output.name] = (
                max(mean, _number(output.original_mean_ulps)),
                max(largest, _number(output.original_max_ulps)),
            )
    return [_run(item, _compare(item, known[str(item.precision)]), asks_torch_npu) for item in ran]


def _compare(item: Ran, known: Mapping[str, tuple[float, float]]) -> Comparison | None:
    """None where a side did not run."""
    sides = item.sides
    if sides.broken or sides.impossible:
        return None
    noisy = _cancelled(sides)
    failed = [name for name, fine in noisy.items() if not fine]
    if failed:
        return Comparison(
            failed[0], Verdict.FAIL, f"{failed[0]}: off by more than {NOISE:g} x the original's rounding"
        )
    expected, actual = (
        {n: v for n, v in part.items() if n not in noisy} for part in (sides.expected, sides.actual)
    )
    try:
        return _by_kind(expected, actual, sides.reference, known)
    except MisuseError as error:
        return Comparison("", Verdict.INCONCLUSIVE, str(error))


def _by_kind(
    expected: Mapping[str, Any],
    actual: Mapping[str, Any],
    reference: Mapping[str, Any] | None,
    known: Mapping[str, tuple[float, float]],
) -> Comparison:
    """Outputs and gradients, each held to its own tolerance."""
    compared: list[Comparison] = []
    for gradients, tolerance in ((False, Tolerance()), (True, GRADIENTS)):
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


def _cancelled(sides: Sides) -> dict[str, bool]:
    """Gradients that cancel to rounding noise -> whether the replaced side's noise is no larger than it may be."""
    found: dict[str, bool] = {}
    for name, expected in sides.expected.items():
        actual, reference = sides.actual.get(name), (sides.reference or {}).get(name)
        if not name.startswith("gradient") or not isinstance(expected, torch.Tensor):
            continue
        if not (isinstance(actual, torch.Tensor) and isinstance(reference, torch.Tensor)):
            continue
        if actual.dtype != expected.dtype or actual.shape != expected.shape:
            continue
        true = reference.double()
        error, other = (expected.double() - true).norm(), (actual.double() - true).norm()
        if bool(error > 0) and bool(true.norm() * CANCELLED < error):
            found[name] = bool(other <= NOISE * error)
    return found


def _run(item: Ran, comparison: Comparison | None, asks_torch_npu: bool) -> Run:
    sides, planned = item.sides, item.planned
    verdict, reason = _verdict(sides, comparison, asks_torch_npu)
    remarks = [f"{name} is not returned by the fused branch" for name in sides.not_returned]
    remarks += [sides.remark] if sides.remark else []
    return Run(
        verdict=verdict,
        reason="; ".join([reason.replace("['", "").replace("']", ""), *remarks]),
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


def _verdict(sides: Sides, comparison: Comparison | None, asks_torch_npu: bool) -> tuple[Verdict, str]:
    if sides.broken:
        return Verdict.FAIL, sides.broken
    if comparison is None:
        return Verdict.INCONCLUSIVE, sides.impossible
    if comparison.verdict is Verdict.PASS and asks_torch_npu and not sides.fused_calls:
        return Verdict.INCONCLUSIVE, "the replaced code makes no call of torch_npu here"
    return comparison.verdict, comparison.reason


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
