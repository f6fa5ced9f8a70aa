"""npu_swiglu, npu_gelu and npu_fast_gelu against plain float64 loops and published values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionkit.npu.facade import TorchNpu

FLOATS = [torch.float16, torch.bfloat16, torch.float32]
SETTINGS = settings(max_examples=40, deadline=None)  # a loaded machine is no failure


def sigmoid(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-value)) if value >= 0 else math.exp(value) / (1.0 + math.exp(value))


def gelu_erf(value: float) -> float:
    return 0.5 * value * math.erfc(-value / math.sqrt(2.0))


def gelu_tanh(value: float) -> float:
    return value * sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (value + 0.044715 * value**3))


def fast_gelu(value: float) -> float:
    return value * sigmoid(1.702 * value)


GELUS: dict[str, tuple[Callable[[float], float], Callable[[TorchNpu, torch.Tensor], torch.Tensor]]] = {
    "erf": (gelu_erf, lambda npu, x: npu.npu_gelu(x)),
    "none": (gelu_erf, lambda npu, x: npu.npu_gelu(x, approximate="none")),
    "tanh": (gelu_tanh, lambda npu, x: npu.npu_gelu(x, approximate="tanh")),
    "fast": (fast_gelu, lambda npu, x: npu.npu_fast_gelu(x)),
}


@st.composite
def tensors(draw: Any, min_rank: int = 0) -> torch.Tensor:
    shape = draw(st.lists(st.integers(1, 5), min_size=min_rank, max_size=3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    size = draw(st.sampled_from([1.0, 4.0]))
    return (torch.randn(shape, generator=generator) * size).to(draw(st.sampled_from(FLOATS)))


@pytest.mark.parametrize("kind", GELUS)
@SETTINGS
@given(x=tensors())
def test_gelu_equals_the_formula(
    npu: TorchNpu, assert_rounded: Callable[..., None], kind: str, x: torch.Tensor
) -> None:
    formula, call = GELUS[kind]
    actual = call(npu, x)
    wide = x.double().numpy()
    assert actual.dtype == x.dtype
    assert_rounded(actual, np.vectorize(formula, otypes=[np.float64])(wide), terms=np.abs(wide))


def test_published_values_of_fast_gelu(npu: TorchNpu) -> None:
    # op-plugin test_fast_gelu.py; fast_gelu is neither the erf nor the tanh form
    got = npu.npu_fast_gelu(torch.tensor([1.0, 2.0, 3.0, 4.0])).tolist()
    assert [round(value, 4) for value in got] == [0.8458, 1.9357, 2.9819, 3.9956]
    assert npu.npu_gelu(torch.tensor([1.0])).item() == pytest.approx(0.8413, abs=1e-4)
    assert npu.npu_gelu(torch.tensor([1.0]), approximate="tanh").item() == pytest.approx(0.8412, abs=5e-5)


def test_fast_gelu_does_not_overflow_far_out(npu: TorchNpu) -> None:
    got = npu.npu_fast_gelu(torch.tensor([-300.0, 300.0], dtype=torch.bfloat16))
    assert got.tolist() == [0.0, 300.0]


@st.composite
def swiglu_inputs(draw: Any) -> tuple[torch.Tensor, int]:
    x = draw(tensors(min_rank=1))
    dim = draw(st.integers(-x.dim(), x.dim() - 1))
    return torch.cat([x, x.flip(0) - 0.5], dim).contiguous(), dim


@SETTINGS
@given(swiglu_inputs())
def test_swiglu_equals_the_loop(npu: TorchNpu, assert_rounded: Callable[..., None], case: Any) -> None:
    x, dim = case
    wide = np.moveaxis(x.double().numpy(), dim, 0)
    half = wide.shape[0] // 2
    expected = np.empty(wide[:half].shape)
    for place in np.ndindex(*expected.shape):
        gate, value = wide[place], wide[(place[0] + half, *place[1:])]
        expected[place] = gate * sigmoid(gate) * value
    actual = npu.npu_swiglu(x, dim)
    assert actual.dtype == x.dtype
    assert actual.is_contiguous()
    assert_rounded(actual, np.moveaxis(expected, 0, dim))


def test_the_first_half_is_the_one_that_gets_silu(npu: TorchNpu) -> None:
    got = npu.npu_swiglu(torch.tensor([[1.0, -2.0, 10.0, 100.0]]))
    assert got[0].tolist() == pytest.approx([10 * sigmoid(1.0), -200 * sigmoid(-2.0)], rel=1e-6)
    along_first = npu.npu_swiglu(torch.tensor([[1.0], [10.0]]), dim=0)
    assert along_first.tolist() == [[pytest.approx(10 * sigmoid(1.0), rel=1e-6)]]


def swiglu_formula(x: torch.Tensor) -> torch.Tensor:
    gate, value = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return gate / (1 + torch.exp(-gate)) * value


FORMULAS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "erf": lambda x: 0.5 * x * torch.erfc(-x / math.sqrt(2.0)),
    "tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))),
    "fast": lambda x: x / (1 + torch.exp(-1.702 * x)),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", [*FORMULAS, "swiglu"])
def test_backward_equals_autograd_of_the_formula_in_float64(
    npu: TorchNpu, assert_rounded: Callable[..., None], kind: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 16).to(dtype)
    formula = swiglu_formula if kind == "swiglu" else FORMULAS[kind]
    call = (lambda _, t: npu.npu_swiglu(t)) if kind == "swiglu" else GELUS[kind][1]
    wide, leaf = x.double().requires_grad_(), x.clone().requires_grad_()
    grad = torch.randn(formula(wide).shape).to(dtype)
    (expected,) = torch.autograd.grad(formula(wide), wide, grad.double())
    (actual,) = torch.autograd.grad(call(npu, leaf), leaf, grad)
    assert actual.dtype == dtype
    assert_rounded(actual, expected.numpy(), terms=8.0, float32_ulps=16)


def test_gelu_keeps_strides_and_swiglu_backward_follows_its_input(npu: TorchNpu) -> None:
    x = torch.randn(3, 4).t()
    assert npu.npu_gelu(x).stride() == x.stride()
    assert npu.npu_fast_gelu(x).stride() == x.stride()
    grad = torch.ops.npu.npu_swiglu_backward(torch.ones(2, 3), x, 0)
    assert grad.stride() == x.stride()
