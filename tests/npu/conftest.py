"""Target cpu for every test of this folder, and the tolerance its numeric tests share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fusionkit.npu.facade import TorchNpu
from fusionkit.npu.target import use_target

_PRECISION = {torch.float16: (11, -14), torch.bfloat16: (8, -126), torch.float32: (24, -126)}


@pytest.fixture(scope="session", autouse=True)
def npu() -> TorchNpu:
    return use_target("cpu")


def _spacing(values: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Distance between neighbouring numbers of dtype at each value."""
    bits, low = _PRECISION[dtype]
    exponent = np.frexp(np.abs(values))[1] - 1
    return np.ldexp(1.0, np.maximum(exponent, low) - bits + 1)


@pytest.fixture(scope="session")
def assert_rounded() -> Callable[..., None]:
    """actual is expected (float64) computed in float32 and rounded once to its dtype.

    Half a unit of the result's dtype, plus float32_ulps units of float32 at the size of the largest term.
    """

    def check(
        actual: torch.Tensor,
        expected: np.ndarray,
        *,
        float32_ulps: float = 8.0,
        terms: np.ndarray | float = 0.0,
    ) -> None:
        got = actual.detach().double().numpy()
        assert got.shape == expected.shape
        size = np.maximum(np.abs(expected), np.abs(terms))
        allowed = 0.5 * _spacing(expected, actual.dtype) + float32_ulps * 2.0**-24 * size + 1e-40
        worst = np.abs(got - expected) - allowed
        assert np.all(worst <= 0), f"off by {np.max(np.abs(got - expected))} where {actual.dtype} rounds"

    return check
