"""Permuting tokens to their experts and back, against plain loops."""

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

# the example of torch_npu's documentation of both ops
TOKENS = torch.tensor([[1.0, 1], [2, 2], [3, 3], [4, 4]])
EXPERTS = torch.tensor([[0, 1], [1, 0], [0, 2], [2, 0]])
INVERSE = [0, 4, 5, 1, 2, 6, 7, 3]
PERMUTED = [1.0, 2, 3, 4, 1, 2, 3, 4]


def rows_by_expert(experts: np.ndarray) -> list[tuple[int, int]]:
    """(token, place among its experts) of each permuted row: expert by expert, tokens in their order."""
    table = experts.reshape(experts.shape[0], -1)
    places = [(int(table[t, j]), t, j) for t in range(table.shape[0]) for j in range(table.shape[1])]
    return [(token, place) for _, token, place in sorted(places, key=lambda entry: entry[0])]


@st.composite
def routed_tokens(draw: Any) -> tuple[torch.Tensor, torch.Tensor, int | None]:
    count, top_k = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    flat = draw(st.booleans())
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    tokens = torch.randn(count, 3, generator=generator).to(draw(st.sampled_from(FLOATS)))
    shape = (count,) if flat else (count, top_k)
    experts = torch.randint(0, 4, shape, generator=generator).to(
        draw(st.sampled_from([torch.int32, torch.int64]))
    )
    kept = draw(st.sampled_from([None, 0, 1, 2, 100, -1]))
    return tokens, experts, kept


@SETTINGS
@given(routed_tokens())
def test_permute_equals_the_loop(npu: TorchNpu, case: Any) -> None:
    tokens, experts, kept = case
    rows = rows_by_expert(experts.numpy())
    permuted, sorted_indices = npu.npu_moe_token_permute(tokens, experts, kept)
    limit = len(rows) if not kept else min(kept, len(rows)) if kept > 0 else len(rows) + kept
    assert permuted.shape == (limit, 3)
    for row, (token, _) in enumerate(rows[:limit]):
        assert torch.equal(permuted[row], tokens[token])
    top_k = 1 if experts.dim() == 1 else experts.shape[1]
    assert sorted_indices.dtype == torch.int32
    assert [int(row) for row in sorted_indices] == [
        rows.index((token, place)) for token in range(len(tokens)) for place in range(top_k)
    ]
    assert permuted.dtype == tokens.dtype


def test_the_documented_example(npu: TorchNpu) -> None:
    permuted, sorted_indices = npu.npu_moe_token_permute(TOKENS, EXPERTS)
    assert sorted_indices.tolist() == INVERSE  # argsort of argsort, not argsort
    assert EXPERTS.flatten().argsort(stable=True).tolist() != INVERSE
    assert permuted[:, 0].tolist() == PERMUTED
    assert all(torch.equal(permuted[row], TOKENS[entry // 2]) for entry, row in enumerate(INVERSE))
    back = npu.npu_moe_token_unpermute(permuted, sorted_indices, torch.full((4, 2), 0.5))
    assert torch.equal(back, TOKENS)
    assert torch.equal(npu.npu_moe_token_unpermute(permuted, sorted_indices), TOKENS.repeat_interleave(2, 0))


def test_cutting_rows_off_leaves_sorted_indices_whole(npu: TorchNpu) -> None:
    permuted, sorted_indices = npu.npu_moe_token_permute(TOKENS, EXPERTS, 5)
    assert permuted.shape == (5, 2)
    assert sorted_indices.tolist() == INVERSE  # still tokens * topK values, some beyond the rows there are
    back = npu.npu_moe_token_unpermute(permuted, sorted_indices, torch.ones(4, 2))
    assert back[:, 0].tolist() == [2.0, 2.0, 3.0, 4.0]  # a row that was cut off adds nothing
    assert npu.npu_moe_token_permute(TOKENS, EXPERTS, -3)[0].shape == (5, 2)
    assert npu.npu_moe_token_permute(TOKENS, EXPERTS, 0)[0].shape == (8, 2)


@SETTINGS
@given(routed_tokens(), st.sampled_from(FLOATS))
def test_unpermute_equals_the_loop(
    npu: TorchNpu, assert_rounded: Near, case: Any, probs_dtype: torch.dtype
) -> None:
    tokens, experts, kept = case
    top_k = 1 if experts.dim() == 1 else experts.shape[1]
    permuted, sorted_indices = npu.npu_moe_token_permute(tokens, experts, kept)
    probs = torch.rand(len(tokens), top_k, generator=torch.Generator().manual_seed(1)).to(probs_dtype)
    expected = np.zeros((len(tokens), 3))
    for token in range(len(tokens)):
        for place in range(top_k):
            row = int(sorted_indices[token * top_k + place])
            if row < len(permuted):
                expected[token] += permuted[row].double().numpy() * float(probs[token, place])
    got = npu.npu_moe_token_unpermute(permuted, sorted_indices, probs)
    assert got.dtype == tokens.dtype
    assert_rounded(got, expected, terms=16.0)


def test_a_probability_of_zero_adds_nothing_whatever_the_row_holds(npu: TorchNpu) -> None:
    rows = torch.tensor([[1.0], [torch.nan]])
    got = npu.npu_moe_token_unpermute(
        rows, torch.tensor([0, 1], dtype=torch.int32), torch.tensor([[0.5, 0.0]])
    )
    assert got.tolist() == [[0.5]]


@pytest.mark.parametrize("kept", [None, 5, -2])
@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients_equal_autograd_of_indexing_in_float64(
    npu: TorchNpu, assert_rounded: Near, dtype: torch.dtype, kept: int | None
) -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(4, 3, generator=generator).to(dtype).requires_grad_()
    probs = torch.rand(4, 2, generator=generator).to(dtype).requires_grad_()
    scale = torch.randn(8, 3, generator=generator).to(dtype)
    grad = torch.randn(4, 3, generator=generator).to(dtype)
    permuted, sorted_indices = npu.npu_moe_token_permute(tokens, EXPERTS, kept)
    permuted.retain_grad()
    out = npu.npu_moe_token_unpermute(permuted, sorted_indices, probs)
    actual = torch.autograd.grad(out, (permuted, probs), grad, retain_graph=True)
    (dtokens,) = torch.autograd.grad(permuted, tokens, scale[: len(permuted)])

    wide = [leaf.detach().double().requires_grad_() for leaf in (tokens, permuted, probs)]
    rows = rows_by_expert(EXPERTS.numpy())
    limit = len(permuted)
    sums = []
    for token in range(4):
        places = [rows.index((token, place)) for place in range(2)]
        terms = [wide[1][row] * wide[2][token, place] for place, row in enumerate(places) if row < limit]
        sums.append(torch.stack(terms).sum(0) if terms else torch.zeros(3, dtype=torch.float64))
    expected = torch.autograd.grad(torch.stack(sums), wide[1:], grad.double())
    picked = torch.stack([wide[0][token] for token, _ in rows[:limit]])
    (expected_tokens,) = torch.autograd.grad(picked, wide[0], scale[:limit].double())
    assert [part.dtype for part in (*actual, dtokens)] == [dtype] * 3
    for one, other in zip((*actual, dtokens), (*expected, expected_tokens), strict=True):
        assert_rounded(one, other.numpy(), terms=16.0)


def test_without_probs_only_the_rows_get_a_gradient(npu: TorchNpu) -> None:
    rows = torch.randn(8, 3, requires_grad=True)
    order = torch.tensor(INVERSE, dtype=torch.int32)
    grad = torch.arange(24.0).reshape(8, 3)
    npu.npu_moe_token_unpermute(rows, order).backward(grad)
    assert torch.equal(rows.grad[order.long()], grad)


def test_sorted_indices_carry_no_gradient_and_there_is_no_second_derivative(npu: TorchNpu) -> None:
    tokens = TOKENS.clone().requires_grad_()
    permuted, sorted_indices = npu.npu_moe_token_permute(tokens, EXPERTS)
    assert not sorted_indices.requires_grad
    for out, leaf in (
        (permuted, tokens),
        (npu.npu_moe_token_unpermute(permuted, sorted_indices, torch.ones(4, 2)), tokens),
    ):
        (first,) = torch.autograd.grad(out.square().sum(), leaf, create_graph=True)
        with pytest.raises(MisuseError, match="no second derivative"):
            first.sum().backward()


def test_bad_input_is_one_line(npu: TorchNpu) -> None:
    order = torch.tensor(INVERSE, dtype=torch.int32)
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: npu.npu_moe_token_permute(TOKENS, EXPERTS.float()), "indices must be int32 or int64"),
        (lambda: npu.npu_moe_token_permute(TOKENS, EXPERTS[:2]), "indices must have a row for each token"),
        (lambda: npu.npu_moe_token_permute(TOKENS, EXPERTS, padded_mode=True), "padded_mode must be False"),
        (
            lambda: npu.npu_moe_token_unpermute(TOKENS, order.long()),
            "sorted_indices must be int32, got int64",
        ),
        (
            lambda: npu.npu_moe_token_unpermute(torch.ones(8, 2), order, torch.ones(8, 2)),
            "probs must have as many values as sorted_indices",
        ),
    ]
    for call, text in calls:
        with pytest.raises(MisuseError, match=f"npu_moe_token_.*permute: {text}") as caught:
            call()
        assert "\n" not in str(caught.value)
