"""Compare a replacement's output with the original's, each measured against a float64 reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._pytree import keystr, tree_flatten_with_path

from fusionkit.errors import MisuseError
from fusionkit.numeric import figures
from fusionkit.numeric.comparison import NAN, Comparison, join
from fusionkit.numeric.tolerance import Tolerance
from fusionkit.verdict import Verdict

SEED_THRESHOLD = 2.0**-7
"""cosine(compiled, original) > 2**-7, the criterion of some fusion guides: reported, no part of the verdict."""

PLAIN = (int, float, complex, str, torch.dtype, torch.device, torch.Tensor, type(None))
"""Output leaves that can be compared."""


@dataclass(frozen=True, slots=True)
class _Gate:
    """The criteria for every output of one comparison."""

    tolerance: Tolerance
    dtype: torch.dtype | None
    original_ulps: Mapping[str, tuple[float, float]]
    report: bool


def compare_outputs(
    expected: Any,
    actual: Any,
    *,
    reference: Any = None,
    tolerance: Tolerance | None = None,
    name: str = "output",
    dtype_gate: torch.dtype | None = None,
    original_ulps: Mapping[str, tuple[float, float]] | None = None,
    report: bool = True,
) -> Comparison:
    """Compare `actual` (the replacement's output) with `expected` (the original implementation's).

    Tensors or pytrees of tensors and plain values. `reference`: the float64 output of the original
    (`run_float64`) in the same structure; without one, `expected` is the reference and only the floor applies,
    which the reason says. `dtype_gate`: dtype whose ulp is the unit; default each output's own, float32 for
    float64 outputs (no reference is more precise). `original_ulps`: output name -> mean and max error of the
    original on other inputs; used where larger than the error measured here, which few rows underestimate.
    `report`: measure what is no part of the verdict too (whole-output cosine, largest difference, counts).

    PASS needs all of: the same structure, shapes and dtypes; NaN and Inf only where expected or the reference
    (rounded to the output's dtype) has the same; every row's cosine with the reference, max error and mean
    error within `tolerance`. Integers, booleans and plain values must be equal. Nothing compared (no output,
    no finite element, zero throughout, tensors without values) is INCONCLUSIVE.
    Raises MisuseError for leaves that are neither tensors nor plain values.
    """
    gate = _Gate(tolerance or Tolerance(), dtype_gate, original_ulps or {}, report)
    if isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor):
        return _compare_leaf(name, expected, actual, reference, gate)
    expected_leaves, actual_leaves = _leaves(expected, name), _leaves(actual, name)
    if set(expected_leaves) != set(actual_leaves):
        odd = sorted(set(expected_leaves) ^ set(actual_leaves))[0]
        side = "expected" if odd in expected_leaves else "actual"
        counts = f"{len(expected_leaves)} outputs expected, {len(actual_leaves)} found"
        return Comparison(name, Verdict.FAIL, f"{odd} exists in {side} only: {counts}")
    truth = {} if reference is None else _leaves(reference, name)
    compared = [
        _compare_leaf(key, value, actual_leaves[key], truth.get(key), gate)
        for key, value in expected_leaves.items()
        if value is not None or actual_leaves[key] is not None
    ]
    return join(name, compared)


def _leaves(tree: Any, name: str) -> dict[str, Any]:
    """Leaves by path, lists and tuples alike."""
    if isinstance(tree, torch.Tensor):
        return {name: tree}
    return {name + keystr(path): leaf for path, leaf in tree_flatten_with_path(tree)[0]}


def _compare_leaf(name: str, expected: Any, actual: Any, reference: Any, gate: _Gate) -> Comparison:
    """Compare one output: structure first, then values by kind."""
    if not (isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor)):
        return _compare_plain(name, expected, actual)
    reference = reference if isinstance(reference, torch.Tensor) else None
    record = Comparison(name, Verdict.FAIL, "", dtype=str(actual.dtype), shape=tuple(actual.shape))
    if expected.shape != actual.shape:
        shapes = f"{tuple(actual.shape)}, expected {tuple(expected.shape)}"
        return replace(record, reason=f"{name}: shape {shapes}")
    if expected.dtype != actual.dtype:
        return replace(record, reason=f"{name}: dtype {actual.dtype}, expected {expected.dtype}")
    if not all(figures.has_values(t) for t in (expected, actual, reference) if t is not None):
        return _inconclusive(record, "a fake or meta tensor carries no values")
    if actual.numel() == 0:
        return _inconclusive(record, "empty tensor, nothing to compare")
    if reference is not None and reference.shape != expected.shape:
        shapes = f"{tuple(reference.shape)}, the output {tuple(expected.shape)}"
        return _inconclusive(record, f"the reference has shape {shapes}")
    expected, actual = expected.detach().cpu(), actual.detach().cpu()
    exact = not (actual.is_floating_point() or actual.is_complex())
    if gate.report or exact:
        record = _describe(record, expected, actual)
    if exact:
        equal = "are equal" if record.bit_equal else f"differ, by up to {record.max_abs:g}"
        reason = f"{name}: {record.dtype} values {equal}"
        return replace(record, verdict=Verdict.PASS if record.bit_equal else Verdict.FAIL, reason=reason)
    truth = expected if reference is None else reference.detach().cpu()
    record = replace(record, has_reference=reference is not None)
    return _judge(record, _real(expected), _real(actual), _real(truth), gate)


def _compare_plain(name: str, expected: Any, actual: Any) -> Comparison:
    """Compare non-tensor outputs: equal or not (NaN equals NaN)."""
    for value in (expected, actual):
        if not isinstance(value, PLAIN):
            kind = type(value).__name__
            raise MisuseError(f"{name}: {kind} is neither a tensor nor a plain value; return tensors")
    if isinstance(expected, torch.Tensor) or isinstance(actual, torch.Tensor):
        kinds = f"{type(actual).__name__}, expected {type(expected).__name__}"
        return Comparison(name, Verdict.FAIL, f"{name}: {kinds}")
    both_nan = expected != expected and actual != actual
    equal = type(expected) is type(actual) and (expected == actual or both_nan)
    verdict = Verdict.PASS if equal else Verdict.FAIL
    sign = "equals" if equal else "differs from"
    reason = f"{name}: {actual!r} {sign} expected {expected!r}"
    return Comparison(name, verdict, reason, elements=1, bit_equal=equal)


def _inconclusive(record: Comparison, why: str) -> Comparison:
    """The record as INCONCLUSIVE."""
    return replace(record, verdict=Verdict.INCONCLUSIVE, reason=f"{record.name}: {why}")


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor as real pairs in its last dim, so that a row stays a row; others unchanged."""
    return torch.view_as_real(tensor.resolve_conj()).flatten(-2) if tensor.is_complex() else tensor


def _describe(record: Comparison, expected: torch.Tensor, actual: torch.Tensor) -> Comparison:
    """Add the figures that are reported but no part of the verdict."""
    left, right = _real(actual).to(torch.float64), _real(expected).to(torch.float64)
    finite = left.isfinite() & right.isfinite()
    difference, magnitude = (left - right)[finite].abs(), float(right[finite].abs().sum())
    total = float(difference.sum())
    cosine = figures.overall_cosine(left[finite], right[finite])
    return replace(
        record,
        elements=actual.numel(),
        max_abs=float(difference.max()) if difference.numel() else NAN,
        mean_rel=total / magnitude if magnitude > 0 else (0.0 if total == 0 else float("inf")),
        cosine=cosine,
        cosine_above_seed_threshold=cosine > SEED_THRESHOLD,
        bit_equal=figures.bit_equal(actual, expected),
        nan_count=int(left.isnan().sum()),
        inf_count=int(left.isinf().sum()),
        expected_nan_count=int(right.isnan().sum()),
        expected_inf_count=int(right.isinf().sum()),
    )


def _judge(
    record: Comparison, expected: torch.Tensor, actual: torch.Tensor, reference: torch.Tensor, gate: _Gate
) -> Comparison:
    """Apply the rules to one floating output: NaN and Inf, row cosine, mean error, max error."""
    disagreements = figures.nonfinite_disagreements(actual, [expected, reference.to(expected.dtype)])
    if disagreements:
        record = _describe(record, expected, actual)
        counts = f"{record.nan_count} NaN and {record.inf_count} Inf"
        wanted = f"expected {record.expected_nan_count} and {record.expected_inf_count}"
        reason = f"NaN or Inf disagrees at {disagreements} elements: {counts}, {wanted}"
        return replace(record, reason=f"{record.name}: {reason}")
    rows = figures.as_rows(*(tensor.to(torch.float64) for tensor in (reference, actual, expected)))
    if not bool(rows.valid.any()):
        return _inconclusive(record, "no finite element to compare")
    if not bool(rows.reference.any()) and not bool(rows.actual.any()):
        return _inconclusive(record, "zero throughout, no defect could show")
    unit = gate.dtype or (torch.float32 if actual.dtype is torch.float64 else actual.dtype)
    return _decide(_measure(record, rows, unit, gate), gate)


def _measure(record: Comparison, rows: figures.Rows, unit: torch.dtype, gate: _Gate) -> Comparison:
    """Add errors, limits and row cosines."""
    mean, largest = figures.error_ulps(rows, rows.actual, unit)
    original_mean, original_largest = figures.error_ulps(rows, rows.original, unit)
    known_mean, known_largest = gate.original_ulps.get(record.name, (0.0, 0.0))
    return replace(
        record,
        mean_ulps=mean,
        original_mean_ulps=original_mean,
        mean_limit_ulps=gate.tolerance.limit(max(original_mean, known_mean)),
        max_ulps=largest,
        original_max_ulps=original_largest,
        max_limit_ulps=gate.tolerance.limit(max(original_largest, known_largest)),
        max_error=float((rows.actual - rows.reference).abs().max()),
        original_max_error=float((rows.original - rows.reference).abs().max()),
        **figures.row_cosines(rows, gate.tolerance, unit),
    )


def _decide(record: Comparison, gate: _Gate) -> Comparison:
    """Verdict and reason from the measured figures: FAIL names the first broken rule, PASS lists all of them."""
    limits = gate.tolerance
    rules = [
        ("mean", record.mean_ulps, record.original_mean_ulps, record.mean_limit_ulps),
        ("max", record.max_ulps, record.original_max_ulps, record.max_limit_ulps),
    ]
    reference = "" if record.has_reference else "; no float64 reference: expected taken for it, floor only"
    if record.min_cosine < record.cosine_limit:
        row = f"row {record.worst_row}"
        broken = f"cosine {record.min_cosine:.6f} of {row} is below {record.cosine_limit:.6f}"
        return replace(record, verdict=Verdict.FAIL, reason=f"{record.name}: {broken}{reference}")
    for rule, value, original, limit in rules:
        if not value <= limit:
            allowed = f"{limits.k:g} x the original's, here {original:.4g}; at least {limits.floor_ulps:g}"
            broken = f"{rule} error {value:.4g} ulp exceeds {limit:.4g} ({allowed})"
            return replace(record, verdict=Verdict.FAIL, reason=f"{record.name}: {broken}{reference}")
    kept = ", ".join(f"{rule} error {value:.4g} <= {limit:.4g} ulp" for rule, value, _, limit in rules)
    judged = (
        f"row cosine {record.min_cosine:.6f}" if record.judged_rows else "no row large enough for a cosine"
    )
    return replace(record, verdict=Verdict.PASS, reason=f"{record.name}: {kept}, {judged}{reference}")
