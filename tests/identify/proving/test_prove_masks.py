"""Whatever True means in a mask: the replacement that reads it so passes, and the one that inverts it fails."""

from __future__ import annotations

import pytest
import torch
from proved_texts import guarded, prove_texts

from fusionkit.identify.proving.masks import LEFT_PADDED, masks_for, masks_of_either_kind
from fusionkit.identify.proving.setting import Setting
from fusionkit.identify.proving.sizes import SIZES
from fusionkit.verdict import Verdict

SDPA = """
import torch
import torch.nn.functional as F


def attend(query, key, value, attn_mask=None):
{}    return F.scaled_dot_product_attention(query, key, value, attn_mask={}, scale=0.3)
"""
WRITTEN_OUT = """
import torch


def attend(query, key, value, attn_mask=None):
    scores = torch.matmul(query, key.transpose(-1, -2)) * 0.3
    if attn_mask is not None:
        scores = {}
    return torch.matmul(torch.softmax(scores, dim=-1), value)
"""
FUSED = """
dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else query.dtype
query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
mask = None
if attn_mask is not None:
    mask = {}
    mask = mask.expand(query.shape[0], 1, query.shape[2], key.shape[2]).contiguous()
return torch_npu.npu_fusion_attention(query, key, value, query.shape[1], "BNSD", atten_mask=mask, scale=0.3)[0]
"""
START_OF_MASK = """mask = torch.ones((2048, 2048), dtype=torch.bool).triu(1) if is_causal else None
"""
NEGATED = "    if attn_mask is not None:\n        attn_mask = ~attn_mask\n"
EITHER = "(~attn_mask if attn_mask.dtype == torch.bool else attn_mask < 0)"
# text -> what the op has to drop
KINDS = {
    "sdpa, True keeps": (SDPA.format("", "attn_mask"), EITHER),
    "sdpa, inverted before": (SDPA.format(NEGATED, "attn_mask"), "attn_mask"),
    "masked_fill, True drops": (
        WRITTEN_OUT.format('scores.masked_fill(attn_mask, float("-inf"))'),
        "attn_mask",
    ),
    "masked_fill, lowest number": (
        WRITTEN_OUT.format("scores.masked_fill(attn_mask, torch.finfo(scores.dtype).min)"),
        "attn_mask",
    ),
    "masked_fill, inverted": (
        WRITTEN_OUT.format('scores.masked_fill(~attn_mask, float("-inf"))'),
        "~attn_mask",
    ),
    "masked_fill, 0 drops": (
        WRITTEN_OUT.format('scores.masked_fill(attn_mask == 0, float("-inf"))'),
        "attn_mask == 0",
    ),
    "where, True keeps": (WRITTEN_OUT.format('torch.where(attn_mask, scores, float("-inf"))'), "~attn_mask"),
}


def inverse(mask: str) -> str:
    return {
        EITHER: EITHER.replace("~", ""),
        "~attn_mask": "attn_mask",
        "attn_mask": "~attn_mask",
        "attn_mask == 0": "attn_mask != 0",
    }[mask]


def fused(text: str, mask: str) -> str:
    """The branch in front of everything that the function does."""
    body = text.partition("attn_mask=None):\n")[2]
    return guarded(text, body, FUSED.format(mask))


@pytest.mark.parametrize("kind", KINDS)
def test_the_right_polarity_passes_and_the_inverted_one_fails(kind, tmp_path):
    text, dropped = KINDS[kind]
    texts = [fused(text, dropped), fused(text, inverse(dropped))]
    right, wrong = prove_texts(tmp_path, text, "npu_fusion_attention", *texts, dtypes=("float32",))
    assert right.verdict is Verdict.PASS, right.reason
    assert len({run.case.partition(",")[0] for run in right.runs if run.verdict is Verdict.PASS}) >= 3
    assert wrong.verdict is Verdict.FAIL, wrong.reason


CAUSAL = SDPA.format("", "attn_mask").replace("attn_mask=None)", "attn_mask=None, is_causal=False)")
MODE = FUSED.replace("scale=0.3)", "scale=0.3, sparse_mode=2 if is_causal else 0)").replace(
    "mask = None\n", START_OF_MASK
)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("attn_mask < 0", "attn_mask >= 0"), ("sparse_mode=2 if is_causal", "sparse_mode=2 if False")],
)
def test_float_masks_and_causal_calls_are_tried_where_the_code_takes_them(right, wrong, tmp_path):
    text = CAUSAL.replace("attn_mask=attn_mask", "attn_mask=attn_mask, is_causal=is_causal")
    made = guarded(text, text.partition("is_causal=False):\n")[2], MODE.format(EITHER))
    assert right in made
    good, bad = prove_texts(
        tmp_path, text, "npu_fusion_attention", made, made.replace(right, wrong), dtypes=("float32",)
    )
    assert good.verdict is Verdict.PASS, good.reason
    assert bad.verdict is Verdict.FAIL, bad.reason


def test_a_mask_that_no_run_could_give_is_told(tmp_path):
    odd = WRITTEN_OUT.format("scores.masked_fill(attn_mask.rows(), -1e9)")
    (proof,) = prove_texts(
        tmp_path, odd, "npu_fusion_attention", fused(odd, "attn_mask.rows()"), dtypes=("float32",)
    )
    assert proof.verdict is Verdict.INCONCLUSIVE
    assert "reads attn_mask, and no run" in proof.reason


@pytest.mark.parametrize("hazards", [(), ("mask_additive",), ("mask_bool_keep",)])
@pytest.mark.parametrize(("batch", "length"), [(2, 7), (1, 5), (2, 16)])
def test_no_mask_drops_or_keeps_a_whole_row(hazards, batch, length):
    setting = Setting(None, None, None, SIZES[0], batch, length, torch.Generator())
    told = [mask for mask in masks_for(hazards, two_sequences=True) if mask.told != LEFT_PADDED]
    told += masks_of_either_kind(two_sequences=True)
    assert told
    for mask in told:
        made = mask.made(setting)
        low = made < 0 if mask.told.startswith("additive") else made == 0
        assert bool(low.any(-1).all()), mask.told
        assert bool((~low).any(-1).all()), mask.told
