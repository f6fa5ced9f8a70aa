"""npu_fusion_attention against plain float64 loops, and the traps of its masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from attention_oracle import Kept, arranged, attend, dense, keep_all, random_inputs, rounded, template
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from fusionkit.errors import MisuseError
from fusionkit.npu.facade import TorchNpu

FLOATS = [torch.float16, torch.bfloat16, torch.float32]
LAYOUTS = ["BNSD", "BSND", "BSH", "SBH"]
SETTINGS = settings(max_examples=40, deadline=None)  # a loaded machine is no failure
Near = Callable[..., None]


@st.composite
def attention_calls(draw: Any) -> tuple[Any, ...]:
    batch, kv_heads, group = (draw(st.integers(1, 2)) for _ in range(3))
    rows, keys, size = (draw(st.integers(1, 5)) for _ in range(3))
    dtype, layout = draw(st.sampled_from(FLOATS)), draw(st.sampled_from(LAYOUTS))
    heads, seed = kv_heads * group, draw(st.integers(0, 10**6))
    parts = random_inputs(
        seed, dtype, (batch, heads, rows, size), (batch, kv_heads, keys, size), draw(st.integers(1, size))
    )
    options: dict[str, Any] = {}
    kept: Kept = keep_all
    form = draw(st.sampled_from([None, "BNSS", "B1SS", "11SS", "SS"]))
    if form is not None:
        shape = {"BNSS": (batch, heads), "B1SS": (batch, 1), "11SS": (1, 1), "SS": ()}[form]
        mask = np.random.default_rng(seed + 1).random((*shape, rows, keys)) < 0.3
        mask[..., 0] = False  # a row without any key is a case of its own, below
        given_as = draw(st.sampled_from([torch.bool, torch.uint8]))
        options["atten_mask"] = torch.from_numpy(mask).to(given_as)
        options["sparse_mode"] = draw(st.sampled_from([0, 1]))
        full = np.broadcast_to(mask, (batch, heads, rows, keys))
        kept = lambda *place: not full[place]  # noqa: E731
    position: Callable[..., float] = lambda *_: 0.0  # noqa: E731
    form = draw(st.sampled_from([None, (batch, heads, rows), (batch, heads, 1), (1, heads, rows)]))
    if form is not None:
        pse = rounded(np.random.default_rng(seed + 2).standard_normal((*form, keys)), dtype)
        options["pse"] = torch.from_numpy(pse).to(dtype)
        wide = np.broadcast_to(pse, (batch, heads, rows, keys))
        position = lambda *place: float(wide[place])  # noqa: E731
    scale = draw(st.sampled_from([None, 0.5, size**-0.5]))
    if scale is not None:
        options["scale"] = scale
    return parts, heads, layout, dtype, options, kept, position, scale or 1.0


@SETTINGS
@given(attention_calls())
def test_attention_equals_the_loops(npu: TorchNpu, assert_rounded: Near, case: Any) -> None:
    parts, heads, layout, dtype, options, kept, position, scale = case
    out, top, total, empty, *rest = npu.npu_fusion_attention(*dense(parts, heads, layout, dtype), **options)
    expected, expected_top, expected_total = attend(*parts, scale, kept, position)
    size = np.abs(parts[2]).max()
    assert_rounded(out, arranged(expected, layout), float32_ulps=64, terms=size)
    assert_rounded(top[..., 3], expected_top, float32_ulps=64, terms=8.0)
    assert_rounded(total[..., 7], expected_total, float32_ulps=256)
    assert (out.dtype, top.dtype, total.dtype, empty.dtype) == (dtype, torch.float32, torch.float32, dtype)
    assert top.shape == total.shape == (*expected_top.shape, 8)
    assert bool((top == top[..., :1]).all())
    assert bool((total == total[..., :1]).all())
    assert out.is_contiguous()
    assert empty.shape == (0,)
    assert rest == [0, 0, 0]


def square(seed: int = 0, size: int = 4) -> list[torch.Tensor]:
    """query, key and value [1, 2, 5, size] of a self-attention."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(1, 2, 5, size, generator=generator) for _ in range(3)]


def test_a_scale_that_is_left_out_is_one_not_the_root_of_the_head_size(npu: TorchNpu) -> None:
    q, k, v = square()
    left_out = npu.npu_fusion_attention(q, k, v, 2, "BNSD")[0]
    torch.testing.assert_close(left_out, scaled_dot_product_attention(q, k, v, scale=1.0))
    usual = scaled_dot_product_attention(q, k, v)
    assert (left_out - usual).abs().max() > 0.05
    torch.testing.assert_close(npu.npu_fusion_attention(q, k, v, 2, "BNSD", scale=0.5)[0], usual)


def test_a_mask_of_the_other_polarity_is_caught_by_comparing(npu: TorchNpu) -> None:
    q, k, v = square()
    keep = torch.ones(5, 5, dtype=torch.bool).tril()  # True keeps: torch's convention
    expected = scaled_dot_product_attention(q, k, v, attn_mask=keep)
    right = npu.npu_fusion_attention(q, k, v, 2, "BNSD", atten_mask=~keep, scale=0.5)[0]
    torch.testing.assert_close(right, expected)
    wrong = npu.npu_fusion_attention(q, k, v, 2, "BNSD", atten_mask=keep, scale=0.5)[0]
    assert (wrong - expected).abs().max() > 0.05


@pytest.mark.parametrize("mode", range(9))
def test_without_a_mask_every_sparse_mode_is_full_attention(npu: TorchNpu, mode: int) -> None:
    q, k, v = square()
    if mode > 6:
        with pytest.raises(MisuseError, match="sparse_mode must be 0 to 6"):
            npu.npu_fusion_attention(q, k, v, 2, "BNSD", sparse_mode=mode)
        return
    options = {"sparse_mode": mode, "pre_tockens": 1, "next_tockens": 0, "scale": 0.5}
    out = npu.npu_fusion_attention(q, k, v, 2, "BNSD", **options)[0]
    torch.testing.assert_close(out, scaled_dot_product_attention(q, k, v))
    assert (out - scaled_dot_product_attention(q, k, v, is_causal=True)).abs().max() > 0.05


# sparse mode -> which keys a query sees; `more` is how many keys there are beyond the queries
SEEN: dict[int, Callable[[int, int, int], bool]] = {
    2: lambda i, j, more: j <= i,
    3: lambda i, j, more: j <= i + more,
    4: lambda i, j, more: i + more - 2 <= j <= i + more + 1,  # pre_tockens 2, next_tockens 1
}


@pytest.mark.parametrize("mode", SEEN)
@pytest.mark.parametrize(("rows", "keys"), [(4, 4), (3, 6), (6, 3), (2, 2050)])
def test_causal_and_band_masks_start_in_their_corner(
    npu: TorchNpu, assert_rounded: Near, mode: int, rows: int, keys: int
) -> None:
    parts = random_inputs(mode, torch.float32, (1, 2, rows, 2), (1, 1, keys, 2), 2)
    options = {"atten_mask": template(), "sparse_mode": mode, "pre_tockens": 2, "next_tockens": 1}
    out = npu.npu_fusion_attention(*dense(parts, 2, "BNSD", torch.float32), **options)[0]
    expected = attend(*parts, 1.0, lambda b, n, i, j: SEEN[mode](i, j, keys - rows))[0]
    assert_rounded(out, expected, float32_ulps=64, terms=np.abs(parts[2]).max())


def test_top_left_and_bottom_right_causal_differ_only_where_the_lengths_do(npu: TorchNpu) -> None:
    for keys, same in ((4, True), (6, False)):
        parts = random_inputs(0, torch.float32, (1, 1, 4, 4), (1, 1, keys, 4), 4)
        call = dense(parts, 1, "BNSD", torch.float32)
        first, second = (
            npu.npu_fusion_attention(*call, atten_mask=template(torch.uint8), sparse_mode=mode)[0]
            for mode in (2, 3)
        )
        assert torch.allclose(first, second) is same
        causal = scaled_dot_product_attention(*call[:3], is_causal=True, scale=1.0)
        torch.testing.assert_close(first, causal)  # torch counts from the top left


def test_a_template_with_other_values_is_refused(npu: TorchNpu) -> None:
    q, k, v = square()
    for wrong in (~template(), torch.zeros(2048, 2048, dtype=torch.bool), template().roll(1, 1)):
        with pytest.raises(MisuseError, match=r"atten_mask of sparse_mode 2 must be torch.triu"):
            npu.npu_fusion_attention(q, k, v, 2, "BNSD", atten_mask=wrong, sparse_mode=2)


def test_tokens_may_not_cut_off_what_a_whole_mask_keeps(npu: TorchNpu) -> None:
    q, k, v = square()
    padding = torch.zeros(5, 5, dtype=torch.bool)
    padding[:, 4] = True
    with pytest.raises(MisuseError, match="pre_tockens 4 and next_tockens 0 cut off scores that atten_mask"):
        npu.npu_fusion_attention(q, k, v, 2, "BNSD", atten_mask=padding, pre_tockens=4, next_tockens=0)
    in_mode_1 = npu.npu_fusion_attention(
        q, k, v, 2, "BNSD", atten_mask=padding, sparse_mode=1, next_tockens=0
    )
    whole = npu.npu_fusion_attention(q, k, v, 2, "BNSD", atten_mask=padding)
    assert torch.equal(in_mode_1[0], whole[0])
    causal = template()[:5, :5]
    narrow = npu.npu_fusion_attention(q, k, v, 2, "BNSD", atten_mask=causal, pre_tockens=5, next_tockens=0)
    assert torch.equal(narrow[0], npu.npu_fusion_attention(q, k, v, 2, "BNSD", atten_mask=causal)[0])


def test_a_row_that_sees_no_key_averages_value_or_gives_zero(npu: TorchNpu) -> None:
    q, k, v = square()
    mask = torch.zeros(5, 5, dtype=torch.bool)
    mask[2] = True
    plain = npu.npu_fusion_attention(q, k, v, 2, "BNSD", atten_mask=mask, scale=0.5)[0]
    torch.testing.assert_close(plain[:, :, 2], v.mean(2))
    checked = npu.npu_fusion_attention(q, k, v, 2, "BNSD", atten_mask=mask, scale=0.5, inner_precise=2)[0]
    assert checked[:, :, 2].abs().max() == 0
    assert torch.equal(checked[:, :, 3:], plain[:, :, 3:])
    longer = npu.npu_fusion_attention(
        q, k[:, :, :3], v[:, :, :3], 2, "BNSD", atten_mask=template(), sparse_mode=3
    )[0]
    assert longer[:, :, :2].abs().max() == 0  # 5 queries, 3 keys: the first two see none
    assert longer[:, :, 2:].abs().min() > 0


def test_a_position_score_is_added_before_the_scale(npu: TorchNpu) -> None:
    q, k, v = square()
    bias = torch.randn(1, 2, 5, 5, generator=torch.Generator().manual_seed(3))
    expected = scaled_dot_product_attention(q, k, v, attn_mask=bias)  # added after the scale
    plain = npu.npu_fusion_attention(q, k, v, 2, "BNSD", pse=bias, scale=0.5)[0]
    assert (plain - expected).abs().max() > 0.05
    divided = npu.npu_fusion_attention(q, k, v, 2, "BNSD", pse=bias / 0.5, scale=0.5)[0]
    torch.testing.assert_close(divided, expected)


def test_a_sink_takes_part_in_the_sum_and_in_nothing_else(npu: TorchNpu, assert_rounded: Near) -> None:
    parts = random_inputs(5, torch.float32, (2, 4, 3, 4), (2, 2, 5, 4), 4)
    sink = torch.tensor([-1.0, 0.0, 2.0, 9.0])
    out, top, total, *_ = npu.npu_fusion_attention(
        *dense(parts, 4, "BSH", torch.float32), sink=sink, scale=0.5
    )
    expected, expected_top, expected_total = attend(*parts, 0.5, sink=sink.numpy())
    assert_rounded(out, arranged(expected, "BSH"), float32_ulps=64, terms=np.abs(parts[2]).max())
    assert_rounded(top[..., 0], expected_top, float32_ulps=64, terms=8.0)
    assert_rounded(total[..., 0], expected_total, float32_ulps=256)


QUERY_ENDS, KEY_ENDS = [2, 2, 5], [3, 4, 8]


@pytest.mark.parametrize("mode", [None, 1, 2, 3, 4])
@pytest.mark.parametrize("dtype", FLOATS)
def test_packed_sequences_are_attended_one_by_one(
    npu: TorchNpu, assert_rounded: Near, dtype: torch.dtype, mode: int | None
) -> None:
    parts = random_inputs(7, dtype, (1, 4, 5, 4), (1, 2, 8, 4), 4)
    packed = [torch.from_numpy(part[0].swapaxes(0, 1).copy()).to(dtype) for part in parts]
    options: dict[str, Any] = {"actual_seq_qlen": QUERY_ENDS, "actual_seq_kvlen": KEY_ENDS}
    whole = np.random.default_rng(1).random((3, 4)) < 0.4
    whole[:, 0] = False
    if mode is not None:
        options |= {"sparse_mode": mode, "pre_tockens": 2, "next_tockens": 1}
        options["atten_mask"] = template() if mode > 1 else torch.from_numpy(whole)
    out, top, total, *_ = npu.npu_fusion_attention(*packed, 4, "TND", **options)
    assert top.shape == total.shape == (5, 4, 8)
    begins = zip([0, *QUERY_ENDS], QUERY_ENDS, [0, *KEY_ENDS], KEY_ENDS, strict=False)
    for low, high, key_low, key_high in begins:
        more = (key_high - key_low) - (high - low)

        def kept(_b: int, _n: int, i: int, j: int, more: int = more) -> bool:
            return mode is None or (not whole[i, j] if mode == 1 else SEEN[mode](i, j, more))

        piece = [parts[0][:, :, low:high], *(part[:, :, key_low:key_high] for part in parts[1:])]
        expected, expected_top, _ = attend(*piece, 1.0, kept)
        size = np.abs(parts[2]).max()
        assert_rounded(out[low:high], expected[0].swapaxes(0, 1), float32_ulps=64, terms=size)
        assert_rounded(top[low:high, :, 0], expected_top[0].T, float32_ulps=64, terms=8.0)


@pytest.mark.parametrize("ends", [[2, 2, 4], [3, 2, 5], [0, 2, 5, 5]])
def test_sequence_ends_are_running_sums_up_to_the_tokens_there_are(npu: TorchNpu, ends: list[int]) -> None:
    q, k = torch.randn(5, 2, 4), torch.randn(8, 2, 4)
    options = {"actual_seq_qlen": ends, "actual_seq_kvlen": [*KEY_ENDS, 8][: len(ends)]}
    if ends[0] == 0:  # a leading 0 is an empty sequence, which is allowed
        assert npu.npu_fusion_attention(q, k, k, 2, "TND", **options)[0].shape == (5, 2, 4)
        return
    with pytest.raises(MisuseError, match=r"actual_seq_qlen must hold the running sums .* end at T 5"):
        npu.npu_fusion_attention(q, k, k, 2, "TND", **options)


def test_the_mask_of_packed_sequences_covers_the_longest(npu: TorchNpu) -> None:
    q, k = torch.randn(5, 2, 4), torch.randn(8, 2, 4)
    options = {"actual_seq_qlen": QUERY_ENDS, "actual_seq_kvlen": KEY_ENDS}
    small = torch.zeros(2, 4, dtype=torch.bool)
    with pytest.raises(MisuseError, match=r"atten_mask \[2, 4\] is too small for a sequence of 3 queries"):
        npu.npu_fusion_attention(q, k, k, 2, "TND", atten_mask=small, **options)


NOT_COMPUTED: list[tuple[dict[str, Any], str]] = [
    ({"keep_prob": 0.9}, "computes no dropout .*, got keep_prob 0.9; compare with keep_prob=1.0"),
    ({"dropout_mask": torch.zeros(32, dtype=torch.uint8)}, "computes no dropout"),
    (
        {"atten_mask": torch.zeros(1, 1, 5, 5, dtype=torch.bool), "sparse_mode": 5, "prefix": [2]},
        "computes sparse modes 0 to 4, not 5; pass the whole mask with sparse_mode=1",
    ),
    ({"actual_seq_qlen": [5], "actual_seq_kvlen": [5]}, "takes actual_seq_qlen .* with TND only"),
    ({"atten_mask": torch.zeros(1, 1, 1, 5, dtype=torch.bool)}, "atten_mask must be BNSS, B1SS, 11SS or SS"),
    ({"keep_prob": 0.0}, "keep_prob must be above 0"),
]


@pytest.mark.parametrize(("options", "text"), NOT_COMPUTED)
def test_what_is_not_computed_or_not_allowed_is_one_line(npu: TorchNpu, options: Any, text: str) -> None:
    q, k, v = square()
    with pytest.raises(MisuseError, match=text) as caught:
        npu.npu_fusion_attention(q, k, v, 2, "BNSD", **options)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("npu_fusion_attention: ")


def test_the_last_rows_of_a_position_score_stand_for_no_whole_one(npu: TorchNpu) -> None:
    q = torch.zeros(1, 1, 1030, 1)
    with pytest.raises(MisuseError, match="pse as BNSS, BN1S or 1NSS only"):
        npu.npu_fusion_attention(q, q, q, 1, "BNSD", pse=torch.zeros(1, 1, 1024, 1030))


def test_strides_of_the_inputs_do_not_matter(npu: TorchNpu) -> None:
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in square())
    assert not q.is_contiguous()
    out = npu.npu_fusion_attention(q, k, v, 2, "BNSD")[0]
    assert out.is_contiguous()
    assert torch.equal(out, npu.npu_fusion_attention(*square(), 2, "BNSD")[0])
