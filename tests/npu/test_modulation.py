"""fusionkit::layer_norm_scale_shift against a plain float64 loop, and what it hands to mindiesd."""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionkit.npu.kernels import modulation

FLOATS = [torch.float16, torch.bfloat16, torch.float32]
SETTINGS = settings(max_examples=40, deadline=None)  # a loaded machine is no failure


def loop(x: np.ndarray, scale: np.ndarray, shift: np.ndarray, eps: float) -> np.ndarray:
    scale, shift = np.broadcast_to(scale, x.shape), np.broadcast_to(shift, x.shape)
    out = np.empty_like(x)
    for place in np.ndindex(*x.shape[:-1]):
        row = x[place]
        mean = math.fsum(row) / len(row)
        variance = math.fsum((value - mean) ** 2 for value in row) / len(row)
        for j, value in enumerate(row):
            normalized = (value - mean) / math.sqrt(variance + eps)
            out[(*place, j)] = normalized * (1 + scale[(*place, j)]) + shift[(*place, j)]
    return out


@st.composite
def inputs(draw: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
    batch, rows, width = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(2, 9))
    table = draw(st.sampled_from([(batch, 1, width), (1, 1, width), (width,), (batch, rows, width)]))
    dtype = draw(st.sampled_from(FLOATS))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    x = torch.randn(batch, rows, width, generator=generator).to(dtype)
    scale, shift = (torch.randn(table, generator=generator).to(dtype) for _ in range(2))
    return x, scale, shift, draw(st.sampled_from([1e-6, 1e-5]))


@SETTINGS
@given(inputs())
def test_equals_the_loop(assert_rounded: Callable[..., None], case: Any) -> None:
    x, scale, shift, eps = case
    actual = torch.ops.fusionkit.layer_norm_scale_shift(x, scale, shift, eps)
    expected = loop(*(t.double().numpy() for t in (x, scale, shift)), eps)
    assert actual.dtype == x.dtype
    assert actual.is_contiguous()
    spread = 1 / (x.double().std(-1, correction=0, keepdim=True) + 1e-3)  # cancellation in value - mean
    assert_rounded(actual, expected, terms=(16 * (1 + spread)).numpy())


def test_eps_is_1e_6_by_default(assert_rounded: Callable[..., None]) -> None:
    x, zero = torch.tensor([[1e-3, -1e-3]]), torch.zeros(2)
    actual = torch.ops.fusionkit.layer_norm_scale_shift(x, zero, zero)
    assert actual[0].tolist() == pytest.approx([1 / math.sqrt(2), -1 / math.sqrt(2)], rel=1e-6)


@pytest.mark.parametrize("table", [(2, 1, 8), (8,), (2, 3, 8)])
def test_gradients_equal_autograd_of_the_formula_in_float64(table: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x, grad = torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    scale, shift = torch.randn(table), torch.randn(table)
    wide = [t.double().requires_grad_() for t in (x, scale, shift)]
    centred = wide[0] - wide[0].mean(-1, keepdim=True)
    formula = centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-6) * (1 + wide[1]) + wide[2]
    expected = torch.autograd.grad(formula, wide, grad.double())
    leaves = [t.clone().requires_grad_() for t in (x, scale, shift)]
    actual = torch.autograd.grad(torch.ops.fusionkit.layer_norm_scale_shift(*leaves), leaves, grad)
    for got, wanted in zip(actual, expected, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-5)


def test_mindiesd_gets_a_layer_norm_without_affine_and_the_same_tensors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: dict[str, Any] = {}

    def layernorm_scale_shift(
        layernorm: torch.nn.LayerNorm,
        x: torch.Tensor,
        scale: torch.Tensor,
        shift: torch.Tensor,
        fused: bool = True,
    ) -> torch.Tensor:
        seen.update(layernorm=layernorm, fused=fused)
        return layernorm(x) * (1 + scale) + shift

    package = types.ModuleType("mindiesd")
    package.layernorm_scale_shift = layernorm_scale_shift  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mindiesd", package)
    x, scale, shift = torch.randn(2, 3, 8), torch.randn(2, 1, 8), torch.randn(2, 1, 8)
    by_mindiesd = modulation._mindiesd(x, scale, shift, 1e-5)
    assert by_mindiesd is not None
    torch.testing.assert_close(by_mindiesd, torch.ops.fusionkit.layer_norm_scale_shift(x, scale, shift, 1e-5))
    assert (seen["layernorm"].eps, seen["layernorm"].elementwise_affine, seen["fused"]) == (1e-5, False, True)


def test_without_mindiesd_there_is_nothing_to_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mindiesd", None)
    assert modulation._mindiesd(torch.ones(1, 1, 2), torch.ones(1, 1, 2), torch.ones(1, 1, 2), 1e-6) is None


@pytest.mark.parametrize(
    ("shape", "table", "dtype", "fits"),
    [
        ((2, 3, 8), (2, 1, 8), torch.float32, True),
        ((2, 3, 8), (1, 1, 8), torch.float32, False),
        ((3, 8), (1, 8), torch.float32, False),
        ((2, 3, 8), (2, 1, 8), torch.bfloat16, False),
    ],
)
def test_only_shapes_that_mindiesd_takes_are_handed_over(
    shape: tuple[int, ...], table: tuple[int, ...], dtype: torch.dtype, fits: bool
) -> None:
    part = torch.ones(table, dtype=dtype)
    assert modulation._fits_mindiesd(torch.ones(shape), part, part) is fits
