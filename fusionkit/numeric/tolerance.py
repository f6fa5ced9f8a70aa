"""The error that a replacement may have: units in the last place, the floor, the factor and the row cosine.

Two measures of error, both in ulps of the gate dtype against a float64 reference r (formulas in `figures`):

* max error: the largest `|value - r| / ulp(max(|r|, rms of its row))`. An element far smaller than its row is
  the residue of a cancellation (a rotation, a shift) and inherits the error of the row's terms, so the row's rms
  and not the element sets its unit. Otherwise one accidental near-zero element would decide the maximum, and two
  correct implementations could differ by any factor.
* mean error: per row `sum |value - r| / sum ulp(|r|)`, averaged over the rows. A ratio of sums has no heavy
  tail at near-zero elements, and rows of small norm weigh as much as rows of large norm.

Each may be at most `k` times the original implementation's own, with a floor of `floor_ulps` (one ulp).
Rounding a float32 result once gives at most 0.5 and about 0.25 ulp on average, so the floor admits every fused
op that computes in float32 and rounds once. It still refuses a scale of 1.01 in bfloat16: a relative error of
0.01 is 1.28 ulp for an element just above a power of two and 2.56 ulp just below one, so the mean error of such
an output lies between the two, above one ulp, whatever the values are (float16: 10 to 20 ulp, float32: over
80,000). A relative error below 2**-8 can be less than one bfloat16 ulp (an eps of 1e-2 changes rows of mean square
1 by 0.005): only smaller inputs reveal it, see `replay`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fusionkit.encoding import Result
from fusionkit.errors import MisuseError


@dataclass(frozen=True, slots=True)
class Tolerance(Result):
    """Limits of the gate.

    k: largest allowed ratio of the replacement's error to the original's (dimensionless, at least 1).
    floor_ulps: error always allowed, in ulps of the gate dtype (see the module's text).
    min_cosine: smallest allowed cosine between a row (last dim) of the output and of the reference.
    Raises MisuseError for values outside these ranges.
    """

    k: float = 2.0
    floor_ulps: float = 1.0
    min_cosine: float = 0.999

    def __post_init__(self) -> None:
        """Refuse limits that would pass or refuse everything."""
        if not (math.isfinite(self.k) and self.k >= 1.0):
            raise MisuseError(f"tolerance k={self.k}: must be finite and at least 1; the default is 2")
        if not (math.isfinite(self.floor_ulps) and self.floor_ulps >= 0.0):
            raise MisuseError(f"tolerance floor_ulps={self.floor_ulps}: must be finite and not negative")
        if not 0.0 < self.min_cosine <= 1.0:
            raise MisuseError(f"tolerance min_cosine={self.min_cosine}: must be in (0, 1]")

    def limit(self, original_ulps: float) -> float:
        """Largest allowed error in ulps, where the original implementation's is `original_ulps`."""
        return max(self.k * original_ulps, self.floor_ulps)

    def cosine_limits(self, original: torch.Tensor) -> torch.Tensor:
        """Smallest allowed cosine per row, given the original's row cosines (float64, any shape).

        `min_cosine`, or k times the original's angle where that is more: `1 - k**2 * (1 - cos)`, because `1 - cos`
        grows with the square of a small angle.
        """
        return (1.0 - self.k**2 * (1.0 - original)).clamp(max=self.min_cosine)


def ulp(magnitude: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Spacing of the values of `dtype` at each `magnitude` (any float tensor; float64 result, same shape).

    For 2**e <= |x| < 2**(e+1) this is eps * 2**e, never below the smallest subnormal, which is the spacing at
    and around zero; at and above the largest finite value it is the spacing there.
    Raises MisuseError where `dtype` is not a floating dtype.
    """
    if not dtype.is_floating_point:
        raise MisuseError(f"{dtype} has no ulp; pass a floating dtype such as torch.bfloat16")
    limits = torch.finfo(dtype)
    clipped = magnitude.detach().to(torch.float64).abs().clamp(limits.tiny, limits.max)
    mantissa, exponent = torch.frexp(clipped)
    return torch.ldexp(torch.full_like(mantissa, limits.eps), exponent - 1)
