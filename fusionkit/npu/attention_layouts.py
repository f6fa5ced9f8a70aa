"""Shapes of a call of npu_fusion_attention, and the checks of its constraints.

B batch, N heads, S sequence, D head size, H = N * D, T the tokens of all sequences. key and value may have fewer
heads than query (grouped queries). Source: op-plugin docs, torch_npu.npu_fusion_attention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fusionkit.npu.constraint_checks import Arguments, Check, dtype_text, is_tensor, shape_text, sizes

# input_layout: one letter per dimension of query, key and value.
LAYOUTS = ("BNSD", "BSND", "BSH", "SBH", "TND")

# Sparse modes whose atten_mask is a template of one fixed size, whatever S is.
TEMPLATE_SIZE = 2048
TEMPLATE_MODES = (2, 3, 4, 7, 8)
_PREFIX_SHAPE = (3072, TEMPLATE_SIZE)
_COMPRESSED_PSE_ROWS = 1024
_MASKED_BY_BAND = (0, 4)

Size = int | None


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Sizes of one call; None for an unknown size, or one that the layout lacks (batch and sequences of TND)."""

    batch: Size
    heads: Size
    kv_heads: Size
    query_length: Size
    key_length: Size
    head_size: Size
    value_head_size: Size


def _axes(arguments: Arguments, name: str) -> dict[str, Size] | None:
    """Letter of the layout -> size of the named tensor; None if the ranks differ."""
    layout, tensor = arguments["input_layout"], arguments[name]
    if layout not in LAYOUTS or not is_tensor(tensor) or len(tensor.shape) != len(layout):
        return None
    return dict(zip(layout, sizes(tensor), strict=True))


def _quotient(whole: Size, part: Size) -> Size:
    return whole // part if whole is not None and part and whole % part == 0 else None


def attention_shape(arguments: Arguments) -> AttentionShape | None:
    """The sizes of query, key and value under input_layout; None if they do not fit the layout."""
    query, key, value = (_axes(arguments, name) for name in ("query", "key", "value"))
    if query is None or key is None or value is None:
        return None
    heads = query.get("N", arguments["head_num"])
    head_size = query["D"] if "D" in query else _quotient(query["H"], heads)
    kv_heads = key["N"] if "N" in key else _quotient(key["H"], head_size)
    value_size = value["D"] if "D" in value else _quotient(value["H"], kv_heads)
    return AttentionShape(
        query.get("B"), heads, kv_heads, query.get("S"), key.get("S"), head_size, value_size
    )


def fits_layout(name: str) -> Check:
    """The tensor has a dimension for each letter of input_layout."""

    def check(arguments: Arguments) -> str | None:
        layout, tensor = arguments["input_layout"], arguments[name]
        if layout not in LAYOUTS or not is_tensor(tensor) or len(tensor.shape) == len(layout):
            return None
        return f"{shape_text(tensor)} with {layout}"

    return check


def _of_shape(name: str, broken: Callable[[Arguments, AttentionShape], bool]) -> Check:
    """A check of the call's sizes; a violation shows the named tensor or literal."""

    def check(arguments: Arguments) -> str | None:
        shape = attention_shape(arguments)
        if shape is None or arguments[name] is None or not broken(arguments, shape):
            return None
        value = arguments[name]
        text = shape_text(value) if is_tensor(value) else repr(value)
        return text if name == "query" else f"{text} with query {shape_text(arguments['query'])}"

    return check


def _differ(*wanted: Size) -> bool:
    known = {size for size in wanted if size is not None}
    return len(known) > 1


def _has_head_num(arguments: Arguments, _shape: AttentionShape) -> bool:
    axes, head_num = _axes(arguments, "query") or {}, arguments["head_num"]
    if not 1 <= head_num <= 256:
        return True
    return _differ(axes["N"], head_num) if "N" in axes else bool((axes.get("H") or 0) % head_num)


def _same_batch(arguments: Arguments, _shape: AttentionShape) -> bool:
    query, key = _axes(arguments, "query") or {}, _axes(arguments, "key") or {}
    return _differ(query.get("B"), key.get("B"))


def _heads_divide(arguments: Arguments, shape: AttentionShape) -> bool:
    if shape.kv_heads is None:
        key = _axes(arguments, "key") or {}
        return bool(shape.head_size and (key.get("H") or 0) % shape.head_size)
    return shape.kv_heads < 1 or bool((shape.heads or 0) % shape.kv_heads)


def _head_size(arguments: Arguments, shape: AttentionShape) -> bool:
    key = _axes(arguments, "key") or {}
    return _differ(shape.head_size, key.get("D")) or not 1 <= (shape.head_size or 1) <= 768


def _value_follows_key(arguments: Arguments, shape: AttentionShape) -> bool:
    key, value = _axes(arguments, "key") or {}, _axes(arguments, "value") or {}
    if any(_differ(key[letter], value[letter]) for letter in key if letter not in "DH"):
        return True
    if shape.value_head_size is None:
        return bool(shape.kv_heads and (value.get("H") or 0) % shape.kv_heads)
    return shape.value_head_size > (shape.head_size or shape.value_head_size)


head_num_fits = _of_shape("head_num", _has_head_num)
key_has_batch = _of_shape("key", _same_batch)
key_heads_divide = _of_shape("key", _heads_divide)
key_has_head_size = _of_shape("key", _head_size)
value_follows_key = _of_shape("value", _value_follows_key)


def _one_of_shapes(tensor: Any, allowed: Sequence[tuple[Size, ...]]) -> bool:
    actual = sizes(tensor)
    return any(
        len(actual) == len(wanted) and not any(_differ(a, b) for a, b in zip(actual, wanted, strict=True))
        for wanted in allowed
    )


def _pse_shape(arguments: Arguments, shape: AttentionShape) -> bool:
    if arguments["input_layout"] == "TND" or not is_tensor(arguments["pse"]):
        return False
    b, n, q, k = shape.batch, shape.heads, shape.query_length, shape.key_length
    allowed = [(b, n, q, k), (b, n, 1, k), (1, n, q, k)]
    if (q or 0) > _COMPRESSED_PSE_ROWS:
        allowed += [(b, n, _COMPRESSED_PSE_ROWS, k), (1, n, _COMPRESSED_PSE_ROWS, k)]
    return not _one_of_shapes(arguments["pse"], allowed)


def _mask_shapes(arguments: Arguments, shape: AttentionShape) -> list[tuple[Size, ...]]:
    mode, b, n, q, k = (
        arguments["sparse_mode"],
        shape.batch,
        shape.heads,
        shape.query_length,
        shape.key_length,
    )
    if mode in TEMPLATE_MODES:
        return [(TEMPLATE_SIZE, TEMPLATE_SIZE)]
    if mode == 6:
        return [_PREFIX_SHAPE]
    if arguments["input_layout"] == "TND":
        return [(None, None)]
    return [(b, n, q, k), (b, 1, q, k), *([] if mode == 5 else [(1, 1, q, k), (q, k)])]


def mask_form(*modes: int) -> Check:
    """atten_mask has one of the shapes that the op takes in these sparse modes; None masks nothing."""

    def broken(arguments: Arguments, shape: AttentionShape) -> bool:
        mask = arguments["atten_mask"]
        applies = arguments["sparse_mode"] in modes and is_tensor(mask)
        return applies and not _one_of_shapes(mask, _mask_shapes(arguments, shape))

    return _of_shape("atten_mask", broken)


pse_form = _of_shape("pse", _pse_shape)


def sparse_mode_known(arguments: Arguments) -> str | None:
    """0 to 6; with TND 0 to 8 without 5."""
    mode = arguments["sparse_mode"]
    allowed = (0, 1, 2, 3, 4, 6, 7, 8) if arguments["input_layout"] == "TND" else tuple(range(7))
    return None if mode in allowed else f"{mode} with {arguments['input_layout']}"


def band_is_there(arguments: Arguments) -> str | None:
    """pre_tockens and next_tockens leave a non-empty band, in the modes that use them."""
    before, after = arguments["pre_tockens"], arguments["next_tockens"]
    counts = is_tensor(arguments["atten_mask"]) and arguments["sparse_mode"] in _MASKED_BY_BAND
    shape = attention_shape(arguments)
    if not counts or shape is None:
        return None
    outside = [
        length is not None and -tokens >= length
        for tokens, length in ((before, shape.query_length), (after, shape.key_length))
    ]
    return f"{before} and {after}" if before + after < 0 or any(outside) else None


def sequence_ends(arguments: Arguments) -> str | None:
    """With TND both lists of sequence ends are given, with equal lengths."""
    if arguments["input_layout"] != "TND":
        return None
    lengths = [len(arguments[name] or ()) for name in ("actual_seq_qlen", "actual_seq_kvlen")]
    return None if lengths[0] == lengths[1] > 0 else f"{lengths[0]} and {lengths[1]} values"


def softmax_layout_known(arguments: Arguments) -> str | None:
    """'', or 'TND' together with the layout TND."""
    layout = arguments["softmax_layout"]
    right = layout == "" or (layout == "TND" and arguments["input_layout"] == "TND")
    return None if right else f"{layout!r} with {arguments['input_layout']}"


def sink_form(arguments: Arguments) -> str | None:
    """sink is float32 with one value per head."""
    sink = arguments["sink"]
    if not is_tensor(sink):
        return None
    right = sink.dtype == torch.float32 and _one_of_shapes(sink, [(arguments["head_num"],)])
    return None if right else f"{dtype_text(sink)} {shape_text(sink)}"
