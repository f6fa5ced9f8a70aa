"""The gradients of npu_fusion_attention against autograd of a formula in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from attention_oracle import random_inputs, template, tensor

from fusionkit.errors import MisuseError
from fusionkit.npu.facade import TorchNpu

FLOATS = [torch.float16, torch.bfloat16, torch.float32]
LAYOUTS = ["BNSD", "BSND", "BSH", "SBH"]
Near = Callable[..., None]


def heads_first(x: torch.Tensor, layout: str, heads: int) -> torch.Tensor:
    """[B, N, S, D] of a tensor in layout, in differentiable steps."""
    if layout == "BNSD":
        return x
    if layout == "BSND":
        return torch.einsum("bsnd->bnsd", x)
    split = x.reshape(*x.shape[:2], heads, -1)
    return torch.einsum("bsnd->bnsd" if layout == "BSH" else "sbnd->bnsd", split)


def formula(
    parts: list[torch.Tensor],
    layout: str,
    heads: tuple[int, int],
    scale: float,
    dropped: torch.Tensor | None,
    sink: torch.Tensor | None,
) -> torch.Tensor:
    """[B, S, N, D] of attention, written with a sum over the grouped heads instead of repeated keys."""
    query, key, value = (
        heads_first(part, layout, count)
        for part, count in zip(parts, (heads[0], heads[1], heads[1]), strict=True)
    )
    grouped = query.reshape(query.shape[0], heads[1], -1, *query.shape[2:])
    scores = torch.einsum("bhgid,bhjd->bhgij", grouped, key) * scale
    if dropped is not None:
        scores = scores.masked_fill(dropped, -torch.inf)
    if sink is not None:
        column = sink.reshape(1, heads[1], -1, 1, 1).expand(*scores.shape[:-1], 1)
        scores = torch.cat((scores, column), -1)
    weights = scores.softmax(-1)[..., : key.shape[2]]
    return torch.einsum("bhgij,bhjd->bihgd", weights, value).flatten(2, 3)


CASES: list[tuple[str, torch.dtype, str | None, bool]] = [
    *[(layout, dtype, "causal", False) for layout in LAYOUTS for dtype in FLOATS],
    ("BNSD", torch.float32, None, False),
    ("SBH", torch.bfloat16, "whole", True),
    ("BSND", torch.float32, "causal", True),
]


@pytest.mark.parametrize(("layout", "dtype", "masked", "with_sink"), CASES)
def test_gradients_equal_autograd_of_the_formula(
    npu: TorchNpu, assert_rounded: Near, layout: str, dtype: torch.dtype, masked: str | None, with_sink: bool
) -> None:
    arrays = random_inputs(3, dtype, (2, 4, 3, 8), (2, 2, 5, 8), 4)
    leaves = [tensor(array, layout, dtype).requires_grad_() for array in arrays]
    options: dict[str, Any] = {"scale": 0.4}
    dropped = None
    if masked == "causal":
        dropped = torch.ones(3, 5, dtype=torch.bool).triu(3)
        options |= {"atten_mask": template(), "sparse_mode": 3}
    elif masked == "whole":
        dropped = torch.rand(3, 5, generator=torch.Generator().manual_seed(1)) < 0.3
        options["atten_mask"] = dropped
    sink = torch.tensor([0.5, -1.0, 0.0, 2.0], requires_grad=True) if with_sink else None
    out = npu.npu_fusion_attention(*leaves, 4, layout, sink=sink, **options)[0]
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(dtype)
    wanted = [*leaves, *([sink] if sink is not None else [])]
    actual = torch.autograd.grad(out, wanted, grad)

    wide = [leaf.detach().double().requires_grad_() for leaf in wanted]
    extra = wide[3] if with_sink else None
    expected_out = formula(wide[:3], layout, (4, 2), 0.4, dropped, extra)
    upstream = heads_first(grad.double(), layout, 4).transpose(1, 2)
    expected = torch.autograd.grad(expected_out, wide, upstream)
    assert [part.dtype for part in actual[:3]] == [dtype] * 3
    for one, other in zip(actual, expected, strict=True):
        assert_rounded(one, other.numpy(), float32_ulps=64, terms=8.0)
        assert one.is_contiguous()


def test_packed_gradients_are_those_of_each_sequence(npu: TorchNpu) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(rows, heads, 4, generator=generator) for rows, heads in ((5, 4), (8, 2), (8, 2)))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    sink = torch.tensor([0.5, -1.0, 0.0, 2.0], requires_grad=True)
    options = {"atten_mask": template(), "sparse_mode": 3, "scale": 0.5, "sink": sink}
    ends = {"actual_seq_qlen": [2, 5], "actual_seq_kvlen": [3, 8]}
    packed = npu.npu_fusion_attention(*leaves, 4, "TND", **options, **ends)[0]
    grad = torch.randn(packed.shape, generator=generator)
    actual = torch.autograd.grad(packed, [*leaves, sink], grad)
    alone = torch.cat(
        [
            npu.npu_fusion_attention(
                q[a:b].unsqueeze(0), k[c:d].unsqueeze(0), v[c:d].unsqueeze(0), 4, "BSND", **options
            )[0].squeeze(0)
            for a, b, c, d in ((0, 2, 0, 3), (2, 5, 3, 8))
        ]
    )
    torch.testing.assert_close(packed, alone)
    for one, other in zip(actual, torch.autograd.grad(alone, [*leaves, sink], grad), strict=True):
        torch.testing.assert_close(one, other)


def test_a_row_without_any_key_leaves_no_gradient_and_no_nan(npu: TorchNpu) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 1, 3, 4, generator=generator).requires_grad_() for _ in range(3))
    mask = torch.zeros(3, 3, dtype=torch.bool)
    mask[0] = True
    for precise in (0, 2):
        out = npu.npu_fusion_attention(q, k, v, 1, "BNSD", atten_mask=mask, inner_precise=precise)[0]
        dq, dk, dv = torch.autograd.grad(out[:, :, 0].sum(), (q, k, v))
        assert dq.abs().max() == dk.abs().max() == 0
        share = 0.0 if precise else 1 / 3  # zeros, or the average of value
        torch.testing.assert_close(dv, torch.full_like(dv, share))


def test_the_gradient_op_reads_the_statistics_it_is_given() -> None:
    q, k, v = (torch.randn(1, 1, 2, 4) for _ in range(3))
    out, top, total, *_ = torch.ops.npu.npu_fusion_attention(q, k, v, 1, "BNSD")
    grads = torch.ops.npu.npu_fusion_attention_grad(
        q, k, v, torch.ones_like(out), 1, "BNSD", softmax_max=top, softmax_sum=total * 2, attention_in=out
    )
    scores = (q.double() @ k.double().transpose(-1, -2)).softmax(-1) / 2
    expected = scores.transpose(-1, -2) @ torch.ones(1, 1, 2, 4, dtype=torch.float64)
    np.testing.assert_allclose(grads[2].numpy(), expected.numpy(), rtol=1e-5)
    assert grads[3] is None  # torch_npu's meta kernel: dpse None
    assert grads[4].shape == (0,)


def test_a_position_score_has_no_gradient(npu: TorchNpu) -> None:
    q = torch.randn(1, 1, 2, 4)
    pse = torch.zeros(1, 1, 2, 2, requires_grad=True)
    out = npu.npu_fusion_attention(q, q, q, 1, "BNSD", pse=pse)[0]
    assert out.requires_grad
    with pytest.raises(MisuseError, match=r"pse has no gradient .*; a learned bias cannot be trained"):
        out.sum().backward()


def test_the_statistics_carry_no_gradient_and_there_is_no_second_derivative(npu: TorchNpu) -> None:
    q = torch.randn(1, 1, 2, 4, requires_grad=True)
    out, top, total, empty, *_ = npu.npu_fusion_attention(q, q, q, 1, "BNSD")
    assert [x.requires_grad for x in (out, top, total, empty)] == [True, False, False, False]
    (first,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(MisuseError, match="no second derivative"):
        first.sum().backward()
