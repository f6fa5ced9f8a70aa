"""Constraints of npu_fusion_attention on Atlas A2 and A3."""

from __future__ import annotations

import torch

from fusionkit.npu.attention_layouts import (
    LAYOUTS,
    TEMPLATE_MODES,
    band_is_there,
    fits_layout,
    head_num_fits,
    key_has_batch,
    key_has_head_size,
    key_heads_divide,
    mask_form,
    pse_form,
    sequence_ends,
    sink_form,
    softmax_layout_known,
    sparse_mode_known,
    value_follows_key,
)
from fusionkit.npu.constraint_checks import (
    FLOATS,
    Row,
    absent,
    dtype_in,
    number_between,
    one_of,
    present,
    same_dtype,
)

_DOCS = "op-plugin docs npu_fusion_attention"
_GRAD = "ops-transformer docs aclnnFlashAttentionScoreGrad"

_FLOAT = "must be float16, bfloat16 or float32"
_QUERY_DTYPE = "must have the dtype of query"
_LETTERS = "must have one dimension for each letter of input_layout"
_LAYOUT = "must be 'BNSD', 'BSND', 'BSH', 'SBH' or 'TND'"
_FULL_MASK = "must be BNSS, B1SS, 11SS or SS in sparse modes 0 and 1 (no other broadcast; TND: SS)"
_TEMPLATE = "must be the [2048, 2048] template in sparse modes 2, 3, 4, 7 and 8, whatever S is"
_PREFIX = "must be BNSS or B1SS in sparse mode 5, [3072, 2048] in sparse mode 6"


def _input_rows(source: str) -> tuple[Row, ...]:
    """The rows on query, key and value, which the forward and the gradient share."""
    return (
        ("query", _FLOAT, source, dtype_in("query", FLOATS)),
        ("input_layout", _LAYOUT, source, one_of("input_layout", LAYOUTS)),
        ("query", _LETTERS, source, fits_layout("query")),
        ("key", _LETTERS, source, fits_layout("key")),
        ("value", _LETTERS, source, fits_layout("value")),
        ("head_num", "must be query's N (or divide its H), 1 to 256", source, head_num_fits),
        ("key", _QUERY_DTYPE, source, same_dtype("key", "query")),
        ("key", "must have query's batch B", source, key_has_batch),
        ("key", "must have a number of heads that divides query's", source, key_heads_divide),
        ("key", "must have query's head size D, 1 to 768", source, key_has_head_size),
        ("value", _QUERY_DTYPE, source, same_dtype("value", "query")),
        ("value", "must have key's shape, with a head size D no larger", source, value_follows_key),
    )


ATTENTION_ROWS: dict[str, tuple[Row, ...]] = {
    "npu_fusion_attention": (
        *_input_rows(_DOCS),
        ("pse", _QUERY_DTYPE, _DOCS, same_dtype("pse", "query")),
        ("pse", "must be BNSS, BN1S or 1NSS (above S 1024 also its last 1024 rows)", _DOCS, pse_form),
        ("padding_mask", "must be None", _DOCS, absent("padding_mask")),
        ("atten_mask", "must be bool or uint8", _DOCS, dtype_in("atten_mask", (torch.bool, torch.uint8))),
        ("atten_mask", _FULL_MASK, _DOCS, mask_form(0, 1)),
        ("atten_mask", _TEMPLATE, _DOCS, mask_form(*TEMPLATE_MODES)),
        ("atten_mask", _PREFIX, _DOCS, mask_form(5, 6)),
        ("keep_prob", "must be above 0 and at most 1", _DOCS, number_between("keep_prob", 1e-38, 1.0)),
        ("sparse_mode", "must be 0 to 6 (TND: 0 to 8 without 5)", _DOCS, sparse_mode_known),
        (
            "pre_tockens",
            "must leave a band with next_tockens where a mask is given in sparse modes 0 and 4",
            _DOCS,
            band_is_there,
        ),
        (
            "actual_seq_qlen",
            "must be given with TND, and actual_seq_kvlen as many values",
            _DOCS,
            sequence_ends,
        ),
        ("softmax_layout", "must be '', or 'TND' with TND", _DOCS, softmax_layout_known),
        ("sink", "must be float32 of shape [head_num]", _DOCS, sink_form),
    ),
    "npu_fusion_attention_grad": (
        *_input_rows(_GRAD),
        ("dy", _QUERY_DTYPE, _GRAD, same_dtype("dy", "query")),
        ("dy", _LETTERS, _GRAD, fits_layout("dy")),
        ("softmax_max", "must be given", _GRAD, present("softmax_max")),
        ("softmax_max", "must be float32", _GRAD, dtype_in("softmax_max", FLOATS[-1:])),
        ("softmax_sum", "must be given", _GRAD, present("softmax_sum")),
        ("softmax_sum", "must be float32", _GRAD, dtype_in("softmax_sum", FLOATS[-1:])),
    ),
}
