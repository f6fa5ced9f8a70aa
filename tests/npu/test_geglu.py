"""npu_geglu against plain float64 loops: the half that is activated, its form, its gradient."""

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
UNITS = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}


def gelu_erf(value: float) -> float:
    return 0.5 * value * math.erfc(-value / math.sqrt(2.0))


def gelu_tanh(value: float) -> float:
    return 0.5 * value * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (value + 0.044715 * value**3)))


GELUS: dict[int, Callable[[float], float]] = {0: gelu_erf, 1: gelu_tanh}


@st.composite
def geglu_calls(draw: Any) -> tuple[torch.Tensor, int, int, bool]:
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    shape[dim] *= 2
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    x = (torch.randn(shape, generator=generator) * 2).to(draw(st.sampled_from(FLOATS)))
    x = x.transpose(0, -1).contiguous().transpose(0, -1) if draw(st.booleans()) else x
    return x, dim, draw(st.sampled_from([0, 1])), draw(st.booleans())


@SETTINGS
@given(geglu_calls())
def test_geglu_equals_the_loop(npu: TorchNpu, assert_rounded: Callable[..., None], case: Any) -> None:
    x, dim, approximate, left = case
    wide = np.moveaxis(x.double().numpy(), dim, 0)
    half = wide.shape[0] // 2
    y, activated = np.empty(wide[:half].shape), np.empty(wide[:half].shape)
    for place in np.ndindex(*y.shape):
        first, second = wide[place], wide[(place[0] + half, *place[1:])]
        gate, value = (first, second) if left else (second, first)
        activated[place] = GELUS[approximate](gate)
        y[place] = value * activated[place]
    got, got_gelu = npu.npu_geglu(x, dim, approximate, left)
    assert (got.dtype, got_gelu.dtype) == (x.dtype, x.dtype)
    assert got.is_contiguous()
    assert got_gelu.is_contiguous()
    sizes = np.abs(x.double().numpy()).max()
    assert_rounded(got_gelu, np.moveaxis(activated, 0, dim), terms=sizes)
    assert_rounded(got, np.moveaxis(y, 0, dim), terms=sizes**2)


def test_the_right_half_is_activated_unless_it_is_said_otherwise(npu: TorchNpu) -> None:
    x = torch.tensor([[10.0, 3.0]])
    y, gelu = npu.npu_geglu(x)
    assert y.item() == pytest.approx(10 * gelu_tanh(3.0), rel=1e-6)  # the tanh form is the default
    assert gelu.item() == pytest.approx(gelu_tanh(3.0), rel=1e-6)
    assert npu.npu_geglu(x, approximate=0)[0].item() == pytest.approx(10 * gelu_erf(3.0), rel=1e-6)
    assert gelu_erf(3.0) != pytest.approx(gelu_tanh(3.0), rel=1e-6)
    assert npu.npu_geglu(x, -1, 1, True)[0].item() == pytest.approx(3 * gelu_tanh(10.0), rel=1e-6)
    swiglu_order = npu.npu_swiglu(x).item()  # npu_swiglu activates the LEFT half
    assert swiglu_order == pytest.approx(30 / (1 + math.exp(-10)), rel=1e-6)


def formula(x: torch.Tensor, dim: int, approximate: int, left: bool) -> torch.Tensor:
    half = x.shape[dim] // 2
    first, second = x.narrow(dim, 0, half), x.narrow(dim, half, half)
    gate, value = (first, second) if left else (second, first)
    if approximate:
        inner = math.sqrt(2.0 / math.pi) * (gate + 0.044715 * gate**3)
        return value * 0.5 * gate * (1 + torch.tanh(inner))
    return value * 0.5 * gate * torch.erfc(-gate / math.sqrt(2.0))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("approximate", "left"), [(0, False), (1, False), (0, True), (1, True)])
def test_backward_equals_autograd_of_the_formula_in_float64(
    npu: TorchNpu, dtype: torch.dtype, approximate: int, left: bool
) -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 5).to(dtype)
    grad = torch.randn(3, 5).to(dtype)
    wide, leaf = x.double().requires_grad_(), x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(formula(wide, 0, approximate, left), wide, grad.double())
    (actual,) = torch.autograd.grad(npu.npu_geglu(leaf, 0, approximate, left)[0], leaf, grad)
    assert actual.dtype == dtype
    # the gradient of the other half goes through the forward's rounded gelu: one unit, and half a unit
    allowed = UNITS[dtype] * 3.0 * expected.abs() + 32 * 2.0**-24 * 8.0
    assert bool(((actual.double() - expected).abs() <= allowed).all())


def test_backward_takes_the_gelu_it_is_given_and_keeps_strides() -> None:
    x, gelu = torch.randn(4, 6).t(), torch.randn(3, 4)
    grad = torch.ops.npu.npu_geglu_grad(torch.ones(3, 4), x, gelu, 0, 1)
    assert grad.stride() == x.stride()
    assert torch.equal(grad[:3], gelu)  # the left half, which is only multiplied


def test_gelu_carries_no_gradient_and_there_is_no_second_derivative(npu: TorchNpu) -> None:
    x = torch.randn(2, 4, requires_grad=True)
    y, gelu = npu.npu_geglu(x)
    assert (y.requires_grad, gelu.requires_grad) == (True, False)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    with pytest.raises(MisuseError, match="no second derivative"):
        first.sum().backward()


def test_bad_input_is_one_line(npu: TorchNpu) -> None:
    with pytest.raises(MisuseError, match=r"npu_geglu: input must have an even size along dim, got 5"):
        npu.npu_geglu(torch.ones(2, 5))
    with pytest.raises(MisuseError, match=r"npu_geglu: approximate must be 0 \(erf\) or 1 \(tanh\), got 2"):
        npu.npu_geglu(torch.ones(2, 4), approximate=2)
