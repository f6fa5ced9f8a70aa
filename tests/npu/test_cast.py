"""_npu_dtype_cast: values, freshness of the result, gradients."""

from __future__ import annotations

import pytest
import torch

from fusionkit.npu.facade import TorchNpu


def test_rounds_to_nearest_even(npu: TorchNpu) -> None:
    x = torch.tensor([1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, -2.5])
    assert npu._npu_dtype_cast(x, torch.bfloat16).tolist() == [1.0, 1.015625, -2.5]
    assert npu._npu_dtype_cast(x, torch.int32).tolist() == [1, 1, -2]


def test_the_result_is_new_and_contiguous_even_without_a_change(npu: TorchNpu) -> None:
    x = torch.arange(6.0).view(2, 3).t()
    same = npu._npu_dtype_cast(x, torch.float32)
    assert same.data_ptr() != x.data_ptr()
    assert same.is_contiguous()
    assert torch.equal(same, x)


@pytest.mark.parametrize(
    ("given", "wanted"), [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)]
)
def test_the_gradient_comes_back_in_the_inputs_dtype(
    npu: TorchNpu, given: torch.dtype, wanted: torch.dtype
) -> None:
    x = torch.ones(3, dtype=given, requires_grad=True)
    y = npu._npu_dtype_cast(x, wanted)
    y.backward(torch.tensor([1.0, 2.0, 3.0], dtype=wanted))
    assert x.grad is not None
    assert x.grad.dtype == given
    assert x.grad.tolist() == [1.0, 2.0, 3.0]


def test_a_cast_to_an_integer_carries_no_gradient(npu: TorchNpu) -> None:
    assert not npu._npu_dtype_cast(torch.ones(2, requires_grad=True), torch.int64).requires_grad
