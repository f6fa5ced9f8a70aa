"""npu_scaled_masked_softmax against plain float64 loops, and what it makes of masked rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from fusionkit.errors import MisuseError
from fusionkit.npu.facade import TorchNpu

FLOATS = [torch.float16, torch.bfloat16, torch.float32]
SHAPE = (2, 2, 32, 64)
MASKS = [(2, 2, 32, 64), (2, 1, 32, 64), (1, 2, 32, 64), (1, 1, 32, 64), (32, 64), (1, 1, 1, 64)]


def softmax_rows(x: np.ndarray, mask: np.ndarray, scale: float) -> np.ndarray:
    """Row by row; a masked score is -10000."""
    rows, dropped = x.reshape(-1, x.shape[-1]), np.broadcast_to(mask, x.shape).reshape(-1, x.shape[-1])
    result = np.empty_like(rows)
    for i, row in enumerate(rows):
        scores = [-10000.0 if dropped[i, j] else scale * value for j, value in enumerate(row)]
        top = max(scores)
        weights = [math.exp(score - top) for score in scores]
        total = math.fsum(weights)
        result[i] = [weight / total for weight in weights]
    return result.reshape(x.shape)


def inputs(dtype: torch.dtype, mask_shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(len(mask_shape) + sum(mask_shape))
    x = (torch.randn(SHAPE, generator=generator) * 3).to(dtype)
    return x, torch.rand(mask_shape, generator=generator) < 0.4


@pytest.mark.parametrize("mask_shape", MASKS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_softmax_equals_the_loop(
    npu: TorchNpu, assert_rounded: Callable[..., None], dtype: torch.dtype, mask_shape: tuple[int, ...]
) -> None:
    x, mask = inputs(dtype, mask_shape)
    y = npu.npu_scaled_masked_softmax(x, mask, 0.5)
    assert y.dtype == dtype
    assert_rounded(y, softmax_rows(x.double().numpy(), mask.numpy(), 0.5), float32_ulps=64)
    plain = npu.npu_scaled_masked_softmax(x, mask)  # the scale is 1 unless it is given
    assert_rounded(plain, softmax_rows(x.double().numpy(), mask.numpy(), 1.0), float32_ulps=64)


def test_a_row_that_is_masked_throughout_is_uniform_not_nan(npu: TorchNpu) -> None:
    x, mask = torch.randn(1, 1, 32, 32) * 50, torch.zeros(1, 1, 32, 32, dtype=torch.bool)
    mask[..., 3, :] = True
    y = npu.npu_scaled_masked_softmax(x, mask, 2.0)
    assert y[0, 0, 3].tolist() == [1 / 32] * 32
    torch_row = (x * 2).masked_fill(mask, -torch.inf).softmax(-1)[0, 0, 3]
    assert bool(torch_row.isnan().all())


def test_a_masked_score_is_minus_ten_thousand_not_minus_infinity(npu: TorchNpu) -> None:
    x, mask = torch.full((1, 1, 32, 32), -20000.0), torch.zeros(32, 32, dtype=torch.bool)
    mask[:, 0] = True
    y = npu.npu_scaled_masked_softmax(x, mask)
    assert y[0, 0, 0].tolist() == [1.0, *[0.0] * 31]  # scores far below -10000 lose against a masked one


def test_true_masks(npu: TorchNpu) -> None:
    x, mask = torch.zeros(1, 1, 32, 32), torch.zeros(32, 32, dtype=torch.bool)
    mask[:, 16:] = True
    assert npu.npu_scaled_masked_softmax(x, mask)[0, 0, 0].tolist() == [1 / 16] * 16 + [0.0] * 16


@pytest.mark.parametrize("dtype", FLOATS)
def test_backward_equals_autograd_of_the_formula_in_float64(npu: TorchNpu, dtype: torch.dtype) -> None:
    x, mask = inputs(dtype, (2, 1, 32, 64))
    mask[0, 0, 5] = True
    grad = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1)).to(dtype)
    wide, leaf = x.double().requires_grad_(), x.clone().requires_grad_()
    formula = torch.exp((wide * 0.5).masked_fill(mask, -10000.0).log_softmax(-1))
    (expected,) = torch.autograd.grad(formula, wide, grad.double())
    (actual,) = torch.autograd.grad(npu.npu_scaled_masked_softmax(leaf, mask, 0.5), leaf, grad)
    assert actual.dtype == dtype
    assert actual[mask.expand(SHAPE)].abs().max() == 0
    unit = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}.get(dtype, 2.0**-20)
    # through the forward's rounded result, in each product and in the sum over the row
    size = (grad.abs().amax(-1, keepdim=True) * formula.detach()).double()
    allowed = unit * (4 * size + expected.abs()) + 2.0**-24
    assert bool(((actual.double() - expected).abs() <= allowed).all())


def test_backward_is_that_of_the_result_it_is_given() -> None:
    y = torch.rand(1, 1, 32, 32)
    grad = torch.zeros(1, 1, 32, 32)
    grad[..., 0] = 1.0
    none = torch.zeros(32, 32, dtype=torch.bool)
    dx = torch.ops.npu.npu_scaled_masked_softmax_backward(grad, y, none, 3.0, False)
    first = y[..., :1]
    expected = 3.0 * (grad * y - first * y)
    torch.testing.assert_close(dx, expected)


def test_strides_are_kept_and_a_second_derivative_is_refused(npu: TorchNpu) -> None:
    x = torch.randn(1, 1, 32, 64).transpose(2, 3).requires_grad_()
    y = npu.npu_scaled_masked_softmax(x, torch.zeros(64, 32, dtype=torch.bool))
    assert y.stride() == x.stride()
    (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(MisuseError, match="no second derivative"):
        first.sum().backward()


@pytest.mark.parametrize(
    ("shape", "mask", "text"),
    [
        ((1, 1, 32, 48), torch.zeros(32, 48, dtype=torch.bool), "each a multiple of 32, got .*48"),
        ((1, 1, 32, 32), torch.zeros(32, 32), "mask must be bool, got float32"),
        ((1, 1, 32, 32), torch.zeros(2, 1, 32, 32, dtype=torch.bool), "mask must broadcast against x"),
    ],
)
def test_bad_input_is_one_line(npu: TorchNpu, shape: tuple[int, ...], mask: torch.Tensor, text: str) -> None:
    with pytest.raises(MisuseError, match=f"npu_scaled_masked_softmax: .*{text}"):
        npu.npu_scaled_masked_softmax(torch.zeros(shape), mask)
    with pytest.raises(MisuseError, match="fixed_triu_mask must be False"):
        npu.npu_scaled_masked_softmax(torch.zeros(1, 1, 32, 32), torch.zeros(32, 32) > 0, 1.0, True)
