"""The gate of gradients: the whole tensor's error against float64, held to what the original itself loses.

A gradient is a sum over rows of which much cancels, so its single elements tell little: over 1804 gradients of right
replacements (norms, gates, rotations and attentions of twelve models of transformers 5.24, both dtypes and autocast, two
seeds) the largest error of an element was up to 6.6 times the original's, the error of the whole tensor never above 1.25
times, and half of them within 1.0. Gradients that are wrong (a factor, a term or a branch left out) differ by a good part
of their size, which is thousands of times that in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from fusionkit.numeric import Tolerance

ELEMENTS = Tolerance(k=8.0)
"""For single elements and rows of gradients; the row cosine is that of outputs."""

K = 2.0
"""Largest ratio of the whole tensor's error to the original's, as for outputs."""

FLOOR = 1.0
"""Error of the whole tensor that is always allowed, in eps of its dtype times its norm: the two roundings of a product."""

CANCELLED = 0.5
"""A gradient of which the original itself gets less than this right is what a cancellation left over."""

NOISE = 8.0
"""Such a gradient may be off by this factor of what the original is off: both are rounding noise of other sums."""

Values = Mapping[str, Any]


def relative_errors(sides: Values, reference: Values | None) -> dict[str, float]:
    """Error of each gradient against float64, over the norm of the true one; without those that are no numbers."""
    found = {}
    for name, value in sides.items():
        true = _true(name, value, reference)
        if true is not None and bool(true.any()):
            found[name] = float((value.double() - true).norm() / true.norm())
    return {name: error for name, error in found.items() if error == error}


def cancelled(expected: Values, actual: Values, reference: Values | None) -> dict[str, str]:
    """Gradients that cancel to rounding noise -> why the replaced side's noise is too large, "" where it is not."""
    found: dict[str, str] = {}
    for name, value in expected.items():
        true, other = _true(name, value, reference), _true(name, actual.get(name), reference)
        if true is None or other is None or actual[name].dtype != value.dtype:
            continue
        error, wrong = (value.double() - true).norm(), (actual[name].double() - true).norm()
        if bool(error > 0) and bool(true.norm() * CANCELLED < error):
            fine = bool(wrong <= NOISE * error)
            found[name] = "" if fine else f"{name}: off by more than {NOISE:g} x the original's rounding"
    return found


def refusal(expected: Values, actual: Values, reference: Values | None, known: Mapping[str, float]) -> str:
    """Why the first gradient that is off as a whole is; "" where none is. `known`: the original's errors in other runs."""
    truth = reference if reference is not None else expected
    mine, theirs = relative_errors(expected, truth), relative_errors(actual, truth)
    for name, error in theirs.items():
        own = max(mine.get(name, 0.0), known.get(name, 0.0))
        limit = max(K * own, FLOOR * torch.finfo(actual[name].dtype).eps)
        if error > limit:
            allowed = f"{K:g} x the original's, here {own:.3g}; at least {FLOOR:g} eps"
            return f"{name}: error {error:.3g} of its norm exceeds {limit:.3g} ({allowed})"
    return ""


def _true(name: str, value: Any, reference: Values | None) -> torch.Tensor | None:
    """The true gradient of that name, float64, where `value` is one that can be held against it."""
    true = (reference or {}).get(name)
    if (
        not name.startswith("gradient")
        or not isinstance(value, torch.Tensor)
        or not isinstance(true, torch.Tensor)
    ):
        return None
    fits = true.shape == value.shape and value.is_floating_point()
    return true.double() if fits else None
