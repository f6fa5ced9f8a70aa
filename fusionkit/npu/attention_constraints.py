"""Shapes of a call of npu_fusion_attention, and its constraints on Atlas A2 and A3.

B batch, N heads, S sequence, D head size, H = N * D, T the tokens of all sequences. key and value may have fewer
heads than query (grouped queries). Source: op-plugin docs, torch_npu.npu_fusion_attention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fusionkit.npu.constraint_checks import (
    FLOATS,
    Arguments,
    Row,
    Rule,
    Size,
    absent,
    cited,
    dtype_in,
    dtype_text,
    is_tensor,
    number,
    one_of,
    present,
    rule,
    same,
    same_dtype,
    shape_text,
    sizes,
    value_text,
)

# input_layout: one letter per dimension of query, key and value.
LAYOUTS = ("BNSD", "BSND", "BSH", "SBH", "TND")

# Sparse modes whose atten_mask is a template of one fixed size, whatever S is.
TEMPLATE_MODES = (2, 3, 4, 7, 8)
_TEMPLATE_SIZE = 2048
_PREFIX_SHAPE = (3072, _TEMPLATE_SIZE)
_COMPRESSED_PSE_ROWS = 1024
_MASKED_BY_BAND = (0, 4)


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Sizes of one call, None for an unknown one; query, key and value by the letters of the layout."""

    query: dict[str, Size]
    key: dict[str, Size]
    value: dict[str, Size]
    heads: Size
    kv_heads: Size
    head_size: Size
    value_head_size: Size


def attention_shape(arguments: Arguments) -> AttentionShape | None:
    """The sizes of query, key and value under input_layout; None if they do not fit the layout."""
    layout, tensors = arguments["input_layout"], [arguments[name] for name in ("query", "key", "value")]
    if layout not in LAYOUTS or not all(is_tensor(x) and len(x.shape) == len(layout) for x in tensors):
        return None
    query, key, value = (dict(zip(layout, sizes(x), strict=True)) for x in tensors)
    heads = query.get("N", arguments["head_num"])
    head_size = query["D"] if "D" in query else _quotient(query["H"], heads)
    kv_heads = key["N"] if "N" in key else _quotient(key["H"], head_size)
    value_size = value["D"] if "D" in value else _quotient(value["H"], kv_heads)
    return AttentionShape(query, key, value, heads, kv_heads, head_size, value_size)


def _quotient(whole: Size, part: Size) -> Size:
    return whole // part if whole is not None and part and whole % part == 0 else None


def _fits_layout(name: str) -> Rule:
    @rule(name, "must have one dimension for each letter of input_layout")
    def check(arguments: Arguments) -> str | None:
        layout, tensor = arguments["input_layout"], arguments[name]
        if layout not in LAYOUTS or not is_tensor(tensor) or len(tensor.shape) == len(layout):
            return None
        return f"{shape_text(tensor)} with {layout}"

    return check


def _sized(name: str, text: str) -> Callable[[Callable[[Arguments, AttentionShape], bool]], Rule]:
    """Decorator of a test whether the call's sizes violate the rule; a violation shows the argument."""

    def decorate(broken: Callable[[Arguments, AttentionShape], bool]) -> Rule:
        @rule(name, text)
        def check(arguments: Arguments) -> str | None:
            shape, value = attention_shape(arguments), arguments[name]
            if shape is None or value is None or not broken(arguments, shape):
                return None
            return f"{value_text(value)} with query {shape_text(arguments['query'])}"

        return check

    return decorate


def _differ(one: Size, other: Size) -> bool:
    return None not in (one, other) and one != other


@_sized("head_num", "must be query's N (or divide its H), 1 to 256")
def _head_num_fits(arguments: Arguments, shape: AttentionShape) -> bool:
    query, head_num = shape.query, arguments["head_num"]
    if not 1 <= head_num <= 256:
        return True
    return _differ(query["N"], head_num) if "N" in query else bool((query["H"] or 0) % head_num)


@_sized("key", "must have query's batch B")
def _key_has_batch(_: Arguments, shape: AttentionShape) -> bool:
    return _differ(shape.query.get("B"), shape.key.get("B"))


@_sized("key", "must have a number of heads that divides query's")
def _key_heads_divide(_: Arguments, shape: AttentionShape) -> bool:
    if shape.kv_heads is None:
        return bool(shape.head_size and (shape.key.get("H") or 0) % shape.head_size)
    return shape.kv_heads < 1 or bool((shape.heads or 0) % shape.kv_heads)


@_sized("key", "must have query's head size D, 1 to 768")
def _key_has_head_size(_: Arguments, shape: AttentionShape) -> bool:
    return _differ(shape.head_size, shape.key.get("D")) or not 1 <= (shape.head_size or 1) <= 768


@_sized("value", "must have key's shape, with a head size D no larger")
def _value_follows_key(_: Arguments, shape: AttentionShape) -> bool:
    key, value = shape.key, shape.value
    if any(_differ(key[letter], value[letter]) for letter in key if letter not in "DH"):
        return True
    if shape.value_head_size is None:
        return bool(shape.kv_heads and (value.get("H") or 0) % shape.kv_heads)
    return shape.value_head_size > (shape.head_size or shape.value_head_size)


@_sized("pse", "must be BNSS, BN1S or 1NSS (above S 1024 also its last 1024 rows)")
def _pse_form(arguments: Arguments, shape: AttentionShape) -> bool:
    if arguments["input_layout"] == "TND" or not is_tensor(arguments["pse"]):
        return False
    b, n, q, k = shape.query.get("B"), shape.heads, shape.query.get("S"), shape.key.get("S")
    allowed = [(b, n, q, k), (b, n, 1, k), (1, n, q, k)]
    if (q or 0) > _COMPRESSED_PSE_ROWS:
        allowed += [(b, n, _COMPRESSED_PSE_ROWS, k), (1, n, _COMPRESSED_PSE_ROWS, k)]
    return not any(same(sizes(arguments["pse"]), form) for form in allowed)


def _mask_shapes(arguments: Arguments, shape: AttentionShape) -> list[tuple[Size, ...]]:
    mode = arguments["sparse_mode"]
    if mode in TEMPLATE_MODES:
        return [(_TEMPLATE_SIZE, _TEMPLATE_SIZE)]
    if mode == 6:
        return [_PREFIX_SHAPE]
    if arguments["input_layout"] == "TND":
        return [(None, None)]
    b, n, q, k = shape.query.get("B"), shape.heads, shape.query.get("S"), shape.key.get("S")
    return [(b, n, q, k), (b, 1, q, k), *([] if mode == 5 else [(1, 1, q, k), (q, k)])]


def _mask_form(text: str, *modes: int) -> Rule:
    """atten_mask has one of the shapes that the op takes in these sparse modes; None masks nothing."""

    @_sized("atten_mask", text)
    def broken(arguments: Arguments, shape: AttentionShape) -> bool:
        mask = arguments["atten_mask"]
        applies = arguments["sparse_mode"] in modes and is_tensor(mask)
        return applies and not any(same(sizes(mask), form) for form in _mask_shapes(arguments, shape))

    return broken


@rule("sparse_mode", "must be 0 to 6 (TND: 0 to 8 without 5)")
def _sparse_mode_known(arguments: Arguments) -> str | None:
    mode = arguments["sparse_mode"]
    allowed = (0, 1, 2, 3, 4, 6, 7, 8) if arguments["input_layout"] == "TND" else tuple(range(7))
    return None if mode in allowed else f"{mode} with {arguments['input_layout']}"


@rule("pre_tockens", "must leave a band with next_tockens where a mask is given in sparse modes 0 and 4")
def _band_is_there(arguments: Arguments) -> str | None:
    before, after = arguments["pre_tockens"], arguments["next_tockens"]
    counts = is_tensor(arguments["atten_mask"]) and arguments["sparse_mode"] in _MASKED_BY_BAND
    shape = attention_shape(arguments)
    if not counts or shape is None:
        return None
    outside = [
        length is not None and -tokens >= length
        for tokens, length in ((before, shape.query.get("S")), (after, shape.key.get("S")))
    ]
    return f"{before} and {after}" if before + after < 0 or any(outside) else None


@rule("actual_seq_qlen", "must be given with TND, and actual_seq_kvlen as many values")
def _sequence_ends(arguments: Arguments) -> str | None:
    if arguments["input_layout"] != "TND":
        return None
    queries, keys = (len(arguments[name] or ()) for name in ("actual_seq_qlen", "actual_seq_kvlen"))
    return None if queries == keys > 0 else f"{queries} and {keys} values"


@rule("softmax_layout", "must be '', or 'TND' with TND")
def _softmax_layout_known(arguments: Arguments) -> str | None:
    layout = arguments["softmax_layout"]
    right = layout == "" or (layout == "TND" and arguments["input_layout"] == "TND")
    return None if right else f"{layout!r} with {arguments['input_layout']}"


@rule("sink", "must be float32 of shape [head_num]")
def _sink_form(arguments: Arguments) -> str | None:
    sink: Any = arguments["sink"]
    if not is_tensor(sink):
        return None
    right = sink.dtype == torch.float32 and same(sizes(sink), (arguments["head_num"],))
    return None if right else f"{dtype_text(sink)} {shape_text(sink)}"


_INPUT_RULES: tuple[Rule, ...] = (
    dtype_in("query", *FLOATS),
    one_of("input_layout", *LAYOUTS),
    _fits_layout("query"),
    _fits_layout("key"),
    _fits_layout("value"),
    _head_num_fits,
    same_dtype("key", "query"),
    _key_has_batch,
    _key_heads_divide,
    _key_has_head_size,
    same_dtype("value", "query"),
    _value_follows_key,
)

ATTENTION_ROWS: dict[str, tuple[Row, ...]] = {
    "npu_fusion_attention": cited(
        "op-plugin docs npu_fusion_attention",
        *_INPUT_RULES,
        same_dtype("pse", "query"),
        _pse_form,
        absent("padding_mask"),
        dtype_in("atten_mask", torch.bool, torch.uint8),
        _mask_form(
            "must be BNSS, B1SS, 11SS or SS in sparse modes 0 and 1 (no other broadcast; TND: SS)", 0, 1
        ),
        _mask_form(
            "must be the [2048, 2048] template in sparse modes 2, 3, 4, 7 and 8, whatever S is",
            *TEMPLATE_MODES,
        ),
        _mask_form("must be BNSS or B1SS in sparse mode 5, [3072, 2048] in sparse mode 6", 5, 6),
        number("keep_prob", "must be above 0 and at most 1", lambda value: 0 < value <= 1),
        _sparse_mode_known,
        _band_is_there,
        _sequence_ends,
        _softmax_layout_known,
        _sink_form,
    ),
    "npu_fusion_attention_grad": cited(
        "ops-transformer docs aclnnFlashAttentionScoreGrad",
        *_INPUT_RULES,
        same_dtype("dy", "query"),
        _fits_layout("dy"),
        present("softmax_max", "must be given"),
        dtype_in("softmax_max", torch.float32),
        present("softmax_sum", "must be given"),
        dtype_in("softmax_sum", torch.float32),
    ),
}
