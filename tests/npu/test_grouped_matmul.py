"""npu_grouped_matmul against plain loops: groups by rows, by K and in pairs; sums and counts; no backward."""

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
Near = Callable[..., None]


def product(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """x @ weight + bias, value by value."""
    result = np.zeros((x.shape[0], weight.shape[1]))
    for i, j in np.ndindex(*result.shape):
        result[i, j] = sum(x[i, k] * weight[k, j] for k in range(x.shape[1]))
        result[i, j] += 0.0 if bias is None else bias[j]
    return result


def wide(tensor: torch.Tensor) -> np.ndarray:
    return tensor.double().numpy()


@st.composite
def grouped_rows(draw: Any) -> tuple[Any, ...]:
    counts = draw(st.lists(st.integers(0, 4), min_size=2, max_size=4).filter(any))
    inner, width = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    dtype = draw(st.sampled_from(FLOATS))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    x = torch.randn(sum(counts), inner, generator=generator).to(dtype)
    weight = torch.randn(len(counts), inner, width, generator=generator).to(dtype)
    bias_dtype = torch.float16 if dtype == torch.float16 else torch.float32
    bias = torch.randn(len(counts), width, generator=generator).to(bias_dtype)
    return counts, x, weight, bias if draw(st.booleans()) else None, draw(st.sampled_from([0, 1]))


@SETTINGS
@given(grouped_rows(), st.booleans(), st.sampled_from([2, 3]))
def test_rows_grouped_by_sums_or_counts_equal_the_loop(
    npu: TorchNpu, assert_rounded: Near, case: Any, stacked: bool, split_item: int
) -> None:
    counts, x, weight, bias, kind = case
    values = counts if kind == 1 else np.cumsum(counts).tolist()
    weights = [weight] if stacked else list(weight)
    biases = None if bias is None else [bias] if stacked else list(bias)
    result = npu.npu_grouped_matmul(
        [x],
        weights,
        bias=biases,
        group_list=torch.tensor(values),
        group_list_type=kind,
        group_type=0,
        split_item=split_item,
    )
    expected, begin = [], 0
    for group, count in enumerate(counts):
        part = wide(x)[begin : begin + count]
        expected.append(product(part, wide(weight[group]), None if bias is None else wide(bias[group])))
        begin += count
    assert isinstance(result, list)
    assert len(result) == 1
    assert result[0].dtype == x.dtype
    assert_rounded(result[0], np.concatenate(expected), float32_ulps=32, terms=32.0)


@SETTINGS
@given(grouped_rows())
def test_a_list_of_ints_holds_sums_and_may_give_a_tensor_for_each_group(
    npu: TorchNpu, assert_rounded: Near, case: Any
) -> None:
    counts, x, weight, *_ = case
    sums = np.cumsum(counts).tolist()
    apart = npu.npu_grouped_matmul([x], list(weight), group_list=sums)
    assert [part.shape[0] for part in apart] == counts
    for part, low, high, matrix in zip(apart, [0, *sums], sums, weight, strict=False):
        assert_rounded(part, product(wide(x)[low:high], wide(matrix)), float32_ulps=32, terms=32.0)
    (together,) = npu.npu_grouped_matmul([x], list(weight), group_list=sums, split_item=3)
    assert torch.equal(together, torch.cat(apart))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", [0, 1])
def test_groups_along_k_give_one_matrix_each_also_for_an_empty_group(
    npu: TorchNpu, assert_rounded: Near, dtype: torch.dtype, kind: int
) -> None:
    counts = [2, 0, 3]
    tokens, grad = torch.randn(5, 3).to(dtype), torch.randn(5, 4).to(dtype)
    values = torch.tensor(counts if kind else [2, 2, 5])
    (result,) = npu.npu_grouped_matmul(
        [tokens.t()], [grad], group_list=values, group_list_type=kind, group_type=2, split_item=3
    )
    assert result.shape == (3, 3, 4)
    assert result[1].abs().max() == 0
    for group, (low, high) in enumerate([(0, 2), (2, 2), (2, 5)]):
        expected = product(wide(tokens).T[:, low:high], wide(grad)[low:high])
        assert_rounded(result[group], expected, float32_ulps=32, terms=32.0)


def test_pairs_of_any_rank(npu: TorchNpu, assert_rounded: Near) -> None:
    x, weight = [torch.randn(2, 3, 4), torch.randn(5, 1, 4)], [torch.randn(4, 2), torch.randn(4, 3)]
    bias = [torch.randn(2), torch.randn(3)]
    result = npu.npu_grouped_matmul(x, weight, bias=bias, group_type=-1)
    assert [part.shape for part in result] == [(2, 3, 2), (5, 1, 3)]
    for part, left, matrix, row in zip(result, x, weight, bias, strict=True):
        expected = product(wide(left).reshape(-1, 4), wide(matrix), wide(row))
        assert_rounded(part.reshape(-1, part.shape[-1]), expected, float32_ulps=32, terms=32.0)


def test_several_x_in_one_result(npu: TorchNpu) -> None:
    x, weight = [torch.randn(2, 4), torch.randn(3, 4)], [torch.randn(4, 5), torch.randn(4, 5)]
    (result,) = npu.npu_grouped_matmul(x, weight, group_type=0, split_item=2)
    torch.testing.assert_close(result, torch.cat([x[0] @ weight[0], x[1] @ weight[1]]))
    same = npu.npu_grouped_matmul(x, weight, group_list=torch.tensor([2, 5]), group_type=0, split_item=2)
    assert torch.equal(same[0], result)
    with pytest.raises(
        MisuseError, match=r"group_list must give the rows of each x, got groups at \[0, 1, 5\]"
    ):
        npu.npu_grouped_matmul(x, weight, group_list=torch.tensor([1, 5]), group_type=0, split_item=2)


def test_stacked_weights_are_e_k_n_not_e_n_k(npu: TorchNpu) -> None:
    x, weight = torch.randn(4, 3), torch.randn(2, 3, 5)
    options: dict[str, Any] = {"group_list": torch.tensor([1, 4]), "group_type": 0, "split_item": 2}
    (result,) = npu.npu_grouped_matmul([x], [weight], **options)
    torch.testing.assert_close(result[1:], x[1:] @ weight[1])
    with pytest.raises(MisuseError, match=r"weight must have the K of x, .* got \[2, 5, 3\] with \[4, 3\]"):
        npu.npu_grouped_matmul([x], [weight.transpose(1, 2).contiguous()], **options)
    linear = weight.transpose(1, 2).contiguous()  # [E, N, K], as torch.nn.Linear has it: pass a view
    torch.testing.assert_close(npu.npu_grouped_matmul([x], [linear.transpose(1, 2)], **options)[0], result)


@pytest.mark.parametrize(
    ("values", "kind", "text"),
    [
        ([2, 1, 3], 0, r"group_list \[2, 1, 3\] read as running sums .* must rise to the 6 rows"),
        ([2, 3, 6], 1, r"group_list \[2, 3, 6\] read as counts .* must rise to the 6 rows"),
        ([1, 2, 5], 0, "must rise to the 6 rows"),
        ([-1, 3, 4], 1, "must rise to the 6 rows"),
    ],
)
def test_counts_read_as_sums_and_the_reverse_are_refused(
    npu: TorchNpu, values: list[int], kind: int, text: str
) -> None:
    x, weight = [torch.randn(6, 4)], [torch.randn(3, 4, 5)]
    with pytest.raises(MisuseError, match=text) as caught:
        npu.npu_grouped_matmul(
            x, weight, group_list=torch.tensor(values), group_list_type=kind, group_type=0, split_item=2
        )
    assert "\n" not in str(caught.value)


def test_sums_and_counts_of_one_reading_differ(npu: TorchNpu) -> None:
    x, weight = [torch.ones(6, 1)], [torch.tensor([1.0, 2, 3]).reshape(3, 1, 1)]
    options: dict[str, Any] = {"group_type": 0, "split_item": 2}
    values = torch.tensor([0, 0, 6])  # fits both readings, and means the same in this one case only
    first, second = (
        npu.npu_grouped_matmul(x, weight, group_list=values, group_list_type=kind, **options)[0]
        for kind in (0, 1)
    )
    assert torch.equal(first, second)
    counts = npu.npu_grouped_matmul(
        x, weight, group_list=torch.tensor([1, 2, 3]), group_list_type=1, **options
    )
    assert counts[0].flatten().tolist() == [1.0, 2, 2, 3, 3, 3]
    sums = npu.npu_grouped_matmul(x, weight, group_list=torch.tensor([1, 3, 6]), **options)
    assert torch.equal(sums[0], counts[0])


class Experts(torch.autograd.Function):
    """The wrapper that training needs: both gradients are grouped products again."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight, counts)
        options = {"group_list": counts, "group_list_type": 1, "split_item": 2, "group_type": 0}
        return torch.ops.npu.npu_grouped_matmul([x], [weight], **options)[0]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        x, weight, counts = ctx.saved_tensors
        options = {"group_list": counts, "group_list_type": 1}
        call = torch.ops.npu.npu_grouped_matmul
        dx = call([grad], [weight.transpose(1, 2)], **options, split_item=2, group_type=0)[0]
        dweight = call([x.t()], [grad.contiguous()], **options, split_item=3, group_type=2)[0]
        return dx, dweight, None


def test_the_wrapper_for_training_has_the_gradients_of_a_loop() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(6, 4, requires_grad=True), torch.randn(3, 4, 5, requires_grad=True)
    out = Experts.apply(x, weight, torch.tensor([2, 0, 4]))
    loop = torch.cat([x[:2] @ weight[0], x[2:2] @ weight[1], x[2:] @ weight[2]])
    grad = torch.randn(6, 5)
    torch.testing.assert_close(out, loop)
    actual, expected = (torch.autograd.grad(result, (x, weight), grad) for result in (out, loop))
    torch.testing.assert_close(actual, expected)
    assert actual[1][1].abs().max() == 0


@pytest.mark.parametrize("wanting", ["x", "weight", "bias"])
def test_the_op_itself_refuses_to_be_differentiated(npu: TorchNpu, wanting: str) -> None:
    tensors = {"x": torch.randn(3, 4), "weight": torch.randn(2, 4, 5), "bias": torch.randn(2, 5)}
    tensors[wanting].requires_grad_()
    (result,) = npu.npu_grouped_matmul(
        [tensors["x"]],
        [tensors["weight"]],
        bias=[tensors["bias"]],
        group_list=torch.tensor([1, 3]),
        group_type=0,
        split_item=2,
    )
    assert result.requires_grad
    with pytest.raises(
        MisuseError, match=r"npu_grouped_matmul cannot be differentiated: .* autograd.Function"
    ):
        result.sum().backward()
    with torch.no_grad():
        assert not npu.npu_grouped_matmul(
            [tensors["x"]], list(tensors["weight"]), group_list=[1, 3], split_item=2
        )[0].requires_grad


def test_quantised_calls_and_wrong_forms_are_one_line(npu: TorchNpu) -> None:
    x, weight = torch.randn(3, 4), torch.randn(2, 4, 5)
    options: dict[str, Any] = {"group_list": torch.tensor([1, 3]), "group_type": 0, "split_item": 2}
    calls: list[tuple[dict[str, Any], str]] = [
        ({"scale": [torch.ones(5)]}, "without quantisation only, got scale"),
        ({"group_type": None}, "group_type must be -1, 0 or 2"),
        ({"split_item": 0}, "split_item must be 0 or 1 with group_type -1"),
        ({"group_list": None}, "group_list must be None with group_type -1, and given"),
        ({"act_type": 1}, "act_type must be 0 without quantisation"),
        ({"bias": [torch.ones(5)]}, r"bias must be \[N\] for each weight"),
    ]
    for change, text in calls:
        with pytest.raises(MisuseError, match=text) as caught:
            npu.npu_grouped_matmul([x], [weight], **{**options, **change})
        assert str(caught.value).startswith("npu_grouped_matmul: ")
        assert "\n" not in str(caught.value)
    with pytest.raises(MisuseError, match="without quantisation only, got int8 tensors"):
        npu.npu_grouped_matmul([x.to(torch.int8)], [weight.to(torch.int8)], **options)
