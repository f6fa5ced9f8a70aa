from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fusionkit.errors import MisuseError
from fusionkit.numeric.tolerance import Tolerance, ulp

MANTISSA_BITS = {torch.bfloat16: 7, torch.float16: 10, torch.float32: 23}


@pytest.mark.parametrize(("dtype", "bits"), MANTISSA_BITS.items(), ids=str)
def test_ulp_at_powers_of_two_and_just_below(dtype: torch.dtype, bits: int) -> None:
    at = ulp(torch.tensor([1.0, 2.0, -4.0], dtype=torch.float64), dtype)
    assert at.tolist() == [2.0**-bits, 2.0 ** (1 - bits), 2.0 ** (2 - bits)]
    below = ulp(torch.tensor([1.0 - 2.0**-30], dtype=torch.float64), dtype)
    assert below.item() == 2.0 ** (-1 - bits)


@given(st.floats(min_value=-(2.0**100), max_value=2.0**100, width=32, allow_nan=False))
def test_ulp_of_float32_is_numpys_spacing(value: float) -> None:
    expected = float(np.spacing(np.abs(np.float32(value))))
    assert ulp(torch.tensor([value], dtype=torch.float32), torch.float32).item() == expected


@given(st.integers(min_value=0, max_value=0x7BFE))
def test_ulp_of_float16_is_the_distance_to_the_next_value(bits: int) -> None:
    pair = torch.tensor([bits, bits + 1], dtype=torch.int16).view(torch.float16).to(torch.float64)
    assert ulp(pair[:1], torch.float16).item() == (pair[1] - pair[0]).item()


def test_ulp_is_bounded_at_zero_and_at_infinity() -> None:
    spacing = ulp(torch.tensor([0.0, math.inf, 1e9]), torch.float16)
    assert spacing.tolist() == [2.0**-24, 32.0, 32.0]


def test_ulp_needs_a_floating_dtype() -> None:
    with pytest.raises(MisuseError, match=r"torch\.int32 has no ulp"):
        ulp(torch.ones(1), torch.int32)


@pytest.mark.parametrize(
    "bad",
    [
        {"k": 0.5},
        {"k": math.nan},
        {"floor_ulps": -1.0},
        {"floor_ulps": math.inf},
        {"min_cosine": 0.0},
        {"min_cosine": 1.1},
    ],
    ids=str,
)
def test_limits_that_refuse_or_pass_everything_are_misuse(bad: dict[str, float]) -> None:
    with pytest.raises(MisuseError, match=next(iter(bad))):
        Tolerance(**bad)


def test_limit_is_k_times_the_original_with_a_floor() -> None:
    assert Tolerance().limit(0.25) == 1.0
    assert Tolerance().limit(0.75) == 1.5
    assert Tolerance(k=3.0, floor_ulps=0.0).limit(0.25) == 0.75
    assert Tolerance().to_dict() == {"k": 2.0, "floor_ulps": 1.0, "min_cosine": 0.999}


def test_cosine_limit_is_the_minimum_or_k_times_the_original_s_angle() -> None:
    limits = Tolerance().cosine_limits(torch.tensor([1.0, 0.9999, 0.9995, 0.99], dtype=torch.float64))
    assert limits.tolist() == pytest.approx([0.999, 0.999, 0.998, 0.96])
