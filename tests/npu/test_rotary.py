"""npu_rotary_mul against element by element float64 loops."""

from __future__ import annotations

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


def partner(index: int, width: int, mode: str) -> tuple[int, float]:
    """Which element turns into position index, and with which sign."""
    if mode == "half":
        return (index + width // 2, -1.0) if index < width // 2 else (index - width // 2, 1.0)
    return (index + 1, -1.0) if index % 2 == 0 else (index - 1, 1.0)


def rotary_loop(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, mode: str) -> np.ndarray:
    cos, sin = np.broadcast_to(cos, x.shape), np.broadcast_to(sin, x.shape)
    out = np.empty_like(x)
    for place in np.ndindex(*x.shape):
        other, sign = partner(place[-1], x.shape[-1], mode)
        out[place] = x[place] * cos[place] + sign * x[(*place[:-1], other)] * sin[place]
    return out


FORMS = {
    "half": ["11SD", "B1SD", "BNSD", "1S1D", "BS1D", "S11D", "SB1D", "T1D", "TND"],
    "interleave": ["11SD", "1S1D", "S11D", "T1D"],
}


@st.composite
def rotary_inputs(draw: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, str]:
    mode = draw(st.sampled_from(["half", "interleave"]))
    form = draw(st.sampled_from(FORMS[mode]))
    dtype, table_dtype = draw(st.sampled_from(FLOATS)), draw(st.sampled_from(FLOATS))
    shape = [
        *draw(st.lists(st.integers(1, 3), min_size=len(form) - 1, max_size=len(form) - 1)),
        2 * draw(st.integers(1, 4)),
    ]
    table = [1 if letter == "1" else size for letter, size in zip(form, shape, strict=True)]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    x = torch.randn(shape, generator=generator).to(dtype)
    angle = torch.randn(table, generator=generator)
    return x, angle.cos().to(table_dtype), angle.sin().to(table_dtype), mode


@SETTINGS
@given(rotary_inputs())
def test_rotary_mul_equals_the_loop(npu: TorchNpu, assert_rounded: Callable[..., None], case: Any) -> None:
    x, r1, r2, mode = case
    actual = npu.npu_rotary_mul(x, r1, r2, mode)
    cos, sin = (table.to(x.dtype).double().numpy() for table in (r1, r2))
    assert actual.dtype == x.dtype
    assert actual.is_contiguous()
    assert_rounded(actual, rotary_loop(x.double().numpy(), cos, sin, mode), terms=8.0, float32_ulps=4)


def test_literal_examples(npu: TorchNpu) -> None:
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 4)
    zero, one = torch.zeros(1, 1, 4), torch.ones(1, 1, 4)
    assert npu.npu_rotary_mul(x, zero, one).flatten().tolist() == [
        -3.0,
        -4.0,
        1.0,
        2.0,
    ]  # half is the default
    assert npu.npu_rotary_mul(x, zero, one, "half").flatten().tolist() == [-3.0, -4.0, 1.0, 2.0]
    assert npu.npu_rotary_mul(x, zero, one, "interleave").flatten().tolist() == [-2.0, 1.0, -4.0, 3.0]
    assert npu.npu_rotary_mul(x, one, zero, rotary_mode="interleave").flatten().tolist() == [
        1.0,
        2.0,
        3.0,
        4.0,
    ]
    assert npu.npu_rotary_mul(x, 2 * one, one).flatten().tolist() == [-1.0, 0.0, 7.0, 10.0]


def test_a_wider_cos_is_rounded_to_the_inputs_dtype_first(npu: TorchNpu) -> None:
    x = torch.full((1, 1, 2), 128.0, dtype=torch.bfloat16)
    cos = torch.full((1, 1, 2), 1.0 + 2.0**-8 + 2.0**-9)  # rounds to 1 + 2^-7 in bfloat16
    actual = npu.npu_rotary_mul(x, cos, torch.zeros(1, 1, 2))
    assert actual.flatten().tolist() == [129.0, 129.0]


@pytest.mark.parametrize("mode", ["half", "interleave"])
def test_a_rotate_matrix_replaces_the_mode(npu: TorchNpu, mode: str) -> None:
    torch.manual_seed(0)
    x, cos, sin = torch.randn(2, 3, 4, 6), torch.randn(1, 1, 4, 6), torch.randn(1, 1, 4, 6)
    matrix = torch.zeros(6, 6)
    for column in range(6):
        row, sign = partner(column, 6, mode)
        matrix[row, column] = sign
    other = "half" if mode == "interleave" else "interleave"
    by_matrix = npu.npu_rotary_mul(x, cos, sin, other, matrix)
    torch.testing.assert_close(by_matrix, npu.npu_rotary_mul(x, cos, sin, mode))


def test_rotate_has_no_backward(npu: TorchNpu) -> None:
    x = torch.ones(1, 1, 1, 2, requires_grad=True)
    table = torch.ones(1, 1, 1, 2)
    with pytest.raises(MisuseError, match="rotate has no backward"):
        npu.npu_rotary_mul(x, table, table, rotate=torch.eye(2)).sum().backward()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("mode", "table"), [("half", (2, 1, 4, 6)), ("half", (2, 3, 4, 6)), ("interleave", (1, 1, 4, 6))]
)
def test_backward_equals_autograd_of_the_formula_in_float64(
    npu: TorchNpu, assert_rounded: Callable[..., None], dtype: torch.dtype, mode: str, table: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    x, grad = torch.randn(2, 3, 4, 6).to(dtype), torch.randn(2, 3, 4, 6).to(dtype)
    r1, r2 = torch.rand(table).to(dtype), torch.rand(table).to(dtype)
    wide = [t.double().requires_grad_() for t in (x, r1, r2)]
    order, signs = zip(*(partner(i, 6, mode) for i in range(6)), strict=True)
    turned = wide[0][..., list(order)] * torch.tensor(signs, dtype=torch.float64)
    expected = torch.autograd.grad(wide[0] * wide[1] + turned * wide[2], wide, grad.double())
    leaves = [t.clone().requires_grad_() for t in (x, r1, r2)]
    actual = torch.autograd.grad(npu.npu_rotary_mul(*leaves, mode), leaves, grad)
    for got, wanted in zip(actual, expected, strict=True):
        assert got.dtype == dtype
        assert_rounded(got, wanted.numpy(), terms=32.0, float32_ulps=4)


def test_gradients_of_float32_tables_come_back_in_float32(npu: TorchNpu) -> None:
    x = torch.ones(1, 1, 2, 4, dtype=torch.bfloat16, requires_grad=True)
    cos, sin = (torch.ones(1, 1, 2, 4, requires_grad=True) for _ in range(2))
    npu.npu_rotary_mul(x, cos, sin).sum().backward()
    assert x.grad is not None
    assert cos.grad is not None
    assert (x.grad.dtype, cos.grad.dtype) == (torch.bfloat16, torch.float32)
