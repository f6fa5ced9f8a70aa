"""Measured differences of one output: error in ulps, row cosines, agreement of NaN and Inf, equal bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from fusionkit.numeric.tolerance import Tolerance, ulp

NEGLIGIBLE_ROW = 2.0**-24
"""A row whose rms is below this part of the largest row's (half an ulp of float32) counts as negligible."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Reference and outputs as float64 matrices (rows, last dim); elements that cannot be compared are zero.

    valid: actual and reference are finite. A non-finite value of the original alone counts as zero error.
    """

    reference: torch.Tensor
    actual: torch.Tensor
    original: torch.Tensor
    valid: torch.Tensor

    @property
    def scale(self) -> torch.Tensor:
        """Rms of each reference row over its valid elements, shape (rows, 1)."""
        count = self.valid.sum(dim=1, keepdim=True).clamp(min=1)
        return (self.reference.square().sum(dim=1, keepdim=True) / count).sqrt()


def as_rows(reference: torch.Tensor, actual: torch.Tensor, original: torch.Tensor) -> Rows:
    """Bring three tensors of one shape (float64) into rows; a scalar is one row of one element."""
    width = reference.shape[-1] if reference.dim() else 1
    matrices = [tensor.reshape(-1, width) for tensor in (reference, actual, original)]
    valid = matrices[0].isfinite() & matrices[1].isfinite()
    reference_rows, actual_rows = (torch.where(valid, matrix, 0.0) for matrix in matrices[:2])
    original_rows = torch.where(valid & matrices[2].isfinite(), matrices[2], reference_rows)
    return Rows(reference_rows, actual_rows, original_rows, valid)


def error_ulps(rows: Rows, value: torch.Tensor, dtype: torch.dtype) -> tuple[float, float]:
    """Mean and max error of `value` (shape of rows.reference) in ulps of `dtype`; see `tolerance` for why so.

    The ulp is never smaller than that of a negligible row, so that residue in a zero row is no error.
    """
    error = (value - rows.reference).abs()
    scale = rows.scale
    least = scale.max() * NEGLIGIBLE_ROW
    magnitude = torch.maximum(rows.reference.abs(), least)
    unit_sum = torch.where(rows.valid, ulp(magnitude, dtype), 0.0).sum(dim=1)
    compared = unit_sum > 0
    mean = (error.sum(dim=1)[compared] / unit_sum[compared]).mean()
    maximum = (error / ulp(torch.maximum(magnitude, scale), dtype)).max()
    return float(mean), float(maximum)


def row_cosines(rows: Rows, tolerance: Tolerance, dtype: torch.dtype) -> dict[str, Any]:
    """Cosine of every row of actual and original with the reference row, and the worst against its limit.

    The keys are fields of `Comparison`; where no row is judged there are only the numbers of rows. `worst_row` is an
    index in the output flattened to (rows, last dim); only the error rules judge the `negligible_rows`.
    Negligible rows (rms below `dtype`'s smallest normal, where mantissa bits are lost, or below NEGLIGIBLE_ROW
    of the largest row's) have no meaningful direction and are left out.
    """
    scale = rows.scale.squeeze(1)
    significant = (scale >= torch.finfo(dtype).tiny) & (scale > scale.max() * NEGLIGIBLE_ROW)
    negligible = int((~significant & rows.valid.any(dim=1)).sum())
    numbers = {"judged_rows": int(significant.sum()), "negligible_rows": negligible}
    if not numbers["judged_rows"]:
        return numbers
    actual = _cosine(rows.actual[significant], rows.reference[significant])
    original = _cosine(rows.original[significant], rows.reference[significant])
    limits = tolerance.cosine_limits(original)
    worst = int((actual - limits).argmin())
    return numbers | {
        "min_cosine": float(actual[worst]),
        "original_min_cosine": float(original[worst]),
        "cosine_limit": float(limits[worst]),
        "worst_row": int(significant.nonzero()[worst]),
    }


def _cosine(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Cosine over the last dim, float64; 0 where exactly one side is zero, 1 where both are."""
    norms = left.norm(dim=-1) * right.norm(dim=-1)
    both_zero = (left == 0).all(dim=-1) & (right == 0).all(dim=-1)
    cosine = (left * right).sum(dim=-1) / torch.where(norms > 0, norms, 1.0)
    return torch.where(both_zero, 1.0, cosine)


def overall_cosine(left: torch.Tensor, right: torch.Tensor) -> float:
    """Cosine of two whole outputs given as vectors of their finite elements."""
    return float(_cosine(left, right)) if left.numel() else float("nan")


def nonfinite_disagreements(actual: torch.Tensor, allowed: list[torch.Tensor]) -> int:
    """Number of elements whose kind (finite, NaN, +Inf, -Inf) none of the `allowed` tensors has at that place."""
    agrees = torch.stack([_kind(actual) == _kind(tensor) for tensor in allowed]).any(dim=0)
    return int((~agrees).sum())


def _kind(tensor: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 NaN, 2 +Inf, 3 -Inf."""
    return tensor.isnan().to(torch.int8) + 2 * tensor.isposinf() + 3 * tensor.isneginf()


def has_values(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds numbers at all: fake and meta tensors have only a shape and a dtype."""
    return not (tensor.is_meta or isinstance(tensor, FakeTensor))


def bit_equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype hold the same bits (NaN equals the same NaN, 0 is not -0)."""
    return torch.equal(_bits(left), _bits(right))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor in logical order."""
    return tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
