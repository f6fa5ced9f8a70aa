"""npu_rms_norm and npu_add_rms_norm against plain float64 loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionkit.errors import MisuseError
from fusionkit.npu.facade import TorchNpu

FLOATS = [torch.float16, torch.bfloat16, torch.float32]
SETTINGS = settings(max_examples=40, deadline=None)  # a loaded machine is no failure


def rms_rows(x: np.ndarray, gamma: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Row by row: y and 1/rms, in float64."""
    lead = x.shape[: x.ndim - gamma.ndim]
    rows, weight = x.reshape(-1, gamma.size), gamma.reshape(-1)
    y, rstd = np.empty_like(rows), np.empty(rows.shape[0])
    for i, row in enumerate(rows):
        total = 0.0
        for value in row:
            total += value * value
        rstd[i] = 1.0 / math.sqrt(total / len(row) + eps)
        for j, value in enumerate(row):
            y[i, j] = value * rstd[i] * weight[j]
    return y.reshape(x.shape), rstd.reshape(*lead, *[1] * gamma.ndim)


def as_float64(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Round to nearest even on the bits of float32."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    return kept.astype(np.uint32).view(np.float32).astype(np.float64)


def to_float16(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32).astype(np.float16).astype(np.float64)


@st.composite
def norm_inputs(draw: Any) -> tuple[torch.Tensor, torch.Tensor, float]:
    normalized = draw(st.lists(st.integers(1, 9), min_size=1, max_size=2))
    lead = draw(st.lists(st.integers(1, 3), min_size=max(0, 2 - len(normalized)), max_size=2))
    dtype = draw(st.sampled_from(FLOATS))
    gamma_dtype = draw(st.sampled_from([dtype, torch.float32]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    size = draw(st.sampled_from([1.0, 1e-2, 30.0]))
    x = (torch.randn(*lead, *normalized, generator=generator) * size).to(dtype)
    gamma = (torch.randn(normalized, generator=generator) + 1.5).to(gamma_dtype)
    return x, gamma, draw(st.sampled_from([1e-6, 1e-5, 1e-2]))


@SETTINGS
@given(norm_inputs())
def test_rms_norm_equals_the_loop(npu: TorchNpu, assert_rounded: Callable[..., None], case: Any) -> None:
    x, gamma, eps = case
    y, rstd = npu.npu_rms_norm(x, gamma, epsilon=eps)
    expected, expected_rstd = rms_rows(as_float64(x), as_float64(gamma), eps)
    assert (y.dtype, rstd.dtype) == (x.dtype, torch.float32)
    assert_rounded(y, expected)
    assert_rounded(rstd, expected_rstd)


def test_rms_norm_known_value_and_default_epsilon(npu: TorchNpu) -> None:
    y, rstd = npu.npu_rms_norm(torch.tensor([[3.0, 4.0]]), torch.tensor([1.0, 2.0]))
    assert rstd.tolist() == [[pytest.approx(1 / math.sqrt(12.5 + 1e-6), rel=1e-6)]]
    assert y[0].tolist() == pytest.approx([3 / math.sqrt(12.5), 8 / math.sqrt(12.5)], rel=1e-6)
    tiny, _ = npu.npu_rms_norm(torch.full((1, 4), 1e-3), torch.ones(4))
    assert tiny[0].tolist() == pytest.approx([1e-3 / math.sqrt(2e-6)] * 4, rel=1e-6)  # epsilon is 1e-6


def test_rms_norm_with_float32_gamma_keeps_the_inputs_dtype(npu: TorchNpu) -> None:
    y, rstd = npu.npu_rms_norm(torch.ones(2, 4, dtype=torch.bfloat16), torch.full((4,), 1.00390625))
    assert y.dtype == torch.bfloat16
    assert rstd.shape == (2, 1)
    assert y[0, 0].item() == pytest.approx(1.0, abs=1e-2)


def test_bfloat16_is_normed_in_float32(npu: TorchNpu, assert_rounded: Callable[..., None]) -> None:
    x = torch.full(
        (1, 512), 1.0078125, dtype=torch.bfloat16
    )  # a sum of squares kept in bfloat16 stalls at 256
    y, _ = npu.npu_rms_norm(x, torch.ones(512, dtype=torch.bfloat16))
    assert_rounded(y, np.ones((1, 512)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_rms_norm_backward_equals_autograd_of_the_formula_in_float64(
    npu: TorchNpu, assert_rounded: Callable[..., None], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    x, grad = torch.randn(3, 5, 16).to(dtype), torch.randn(3, 5, 16).to(dtype)
    gamma = (torch.randn(16) + 1.5).to(dtype)
    wide = [t.double().requires_grad_() for t in (x, gamma)]
    formula = wide[0] / torch.sqrt((wide[0] ** 2).mean(-1, keepdim=True) + 1e-5) * wide[1]
    expected = torch.autograd.grad(formula, wide, grad.double())
    leaves = [t.clone().requires_grad_() for t in (x, gamma)]
    actual = torch.autograd.grad(npu.npu_rms_norm(*leaves, 1e-5)[0], leaves, grad)
    assert [t.dtype for t in actual] == [dtype, dtype]
    assert_rounded(actual[0], expected[0].numpy(), float32_ulps=64, terms=8.0)
    assert_rounded(actual[1], expected[1].numpy(), float32_ulps=64, terms=16.0)


def test_rms_norm_backward_gives_gamma_a_float32_gradient() -> None:
    half = {"dtype": torch.float16}
    dx, dgamma = torch.ops.npu.npu_rms_norm_backward(
        torch.ones(2, 4, **half), torch.ones(2, 4, **half), torch.ones(4, **half), torch.ones(2, 1)
    )
    assert (dx.dtype, dgamma.dtype, dgamma.shape) == (torch.float16, torch.float32, (4,))


def test_rstd_carries_no_gradient(npu: TorchNpu) -> None:
    y, rstd = npu.npu_rms_norm(torch.ones(2, 4, requires_grad=True), torch.ones(4))
    assert y.requires_grad
    assert not rstd.requires_grad


@SETTINGS
@given(norm_inputs())
def test_add_rms_norm_equals_the_loop(npu: TorchNpu, assert_rounded: Callable[..., None], case: Any) -> None:
    x1, gamma, eps = case
    gamma, x2 = gamma.to(x1.dtype), x1.flip(-1) * 0.5
    y, rstd, x = npu.npu_add_rms_norm(x1, x2, gamma, eps)
    rounding = {torch.float16: to_float16, torch.bfloat16: to_bfloat16}.get(x1.dtype, lambda values: values)
    total = rounding(as_float64(x1) + as_float64(x2))
    _, expected_rstd = rms_rows(total, np.ones(gamma.shape), eps)
    assert (y.dtype, rstd.dtype, x.dtype) == (x1.dtype, torch.float32, x1.dtype)
    assert_rounded(x, total)
    assert_rounded(rstd, expected_rstd)
    unit = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}.get(x1.dtype, 2.0**-20)
    expected = rounding(total * expected_rstd) * as_float64(gamma)  # a tie may round the other way: one unit
    assert np.all(np.abs(as_float64(y) - expected) <= 1.5 * unit * np.abs(expected) + 1e-7)


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.bfloat16, to_bfloat16), (torch.float16, to_float16)])
def test_add_rms_norm_rounds_the_sum_and_the_norm_as_atlas_a2_does(
    npu: TorchNpu, dtype: torch.dtype, rounding: Callable[[np.ndarray], np.ndarray]
) -> None:
    torch.manual_seed(1)
    x1, x2 = torch.randn(64, 32).to(dtype), torch.randn(64, 32).to(dtype)
    gamma = (torch.randn(32) + 1.5).to(dtype)
    y, _, x = npu.npu_add_rms_norm(x1, x2, gamma)
    exact = as_float64(x1) + as_float64(x2)
    total = rounding(exact)
    rstd = rms_rows(total, np.ones(32), 1e-6)[1]
    stepwise = rounding(rounding(total * rstd) * as_float64(gamma))
    at_once = rounding(rms_rows(exact, as_float64(gamma), 1e-6)[0])
    assert np.array_equal(as_float64(x), total)
    assert np.mean(as_float64(y) == stepwise) > 0.99
    assert np.mean(as_float64(y) == at_once) < 0.9


def test_add_rms_norm_returns_the_sum_third(npu: TorchNpu) -> None:
    y, rstd, x = npu.npu_add_rms_norm(torch.full((1, 2), 1.0), torch.full((1, 2), 2.0), torch.ones(2))
    assert x.tolist() == [[3.0, 3.0]]
    assert rstd.tolist() == [[pytest.approx(1 / 3, rel=1e-6)]]
    assert y.tolist() == [[pytest.approx(1.0, rel=1e-6)] * 2]


def test_add_rms_norm_refuses_to_be_differentiated(npu: TorchNpu) -> None:
    x = torch.ones(1, 2, requires_grad=True)
    y, _, _ = npu.npu_add_rms_norm(x, x, torch.ones(2))
    with pytest.raises(MisuseError, match=r"npu_add_rms_norm cannot be differentiated: .* no backward"):
        y.sum().backward()


def test_strides_of_the_input_are_kept(npu: TorchNpu) -> None:
    x = torch.randn(3, 2, 4).transpose(0, 1)
    y, rstd = npu.npu_rms_norm(x, torch.ones(4))
    assert y.stride() == x.stride()
    assert rstd.is_contiguous()
    assert torch.equal(y, npu.npu_rms_norm(x.contiguous(), torch.ones(4))[0])


def test_a_second_derivative_is_refused(npu: TorchNpu) -> None:
    x = torch.randn(2, 4, requires_grad=True)
    (first,) = torch.autograd.grad(npu.npu_rms_norm(x, torch.ones(4))[0].sum(), x, create_graph=True)
    with pytest.raises(MisuseError, match="no second derivative"):
        first.sum().backward()
