"""Rotary position embedding: x * cos + rotate(x) * sin, its pairs written out, or as a complex product."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fusionkit.identify.rules.rotations import HALF, INTERLEAVED, is_reversed, pair_layout, rotation
from fusionkit.identify.rules.unit import Found, Unit, named
from fusionkit.identify.source.values import PASSED, Value, find, peel, sides

OP = "npu_rotary_mul"
_SPLITS = ("chunk", "split", "narrow", "unbind", "tensor_split")
_TRACED = PASSED | {"getitem", "part", "repeat", "repeat_interleave", "neg", "either", "loop", *_SPLITS}
_AXES = ("mrope_section", "axes_dim", "rope_section")
_FREQUENCIES = re.compile(r"freqs|rotary_emb|rope|pos_emb|position_embeddings", re.IGNORECASE)


def find_rotations(unit: Unit) -> Iterator[Found]:
    """Every rotation of pairs by cos and sin."""
    if not unit.runs:
        return
    for value in unit.flow.values:
        hazards = None
        if value.op in ("add", "sub"):
            hazards = _by_cos_and_sin(unit, value)
        elif value.op == "addcmul":
            hazards = _by_addcmul(unit, value)
        elif value.op == "mul":
            hazards = _complex(value) or _by_matrix(value)
        if hazards is not None:
            yield Found(OP, value, frozenset(hazards | _of_unit(unit)))


def trig(value: Value) -> str | None:
    """ "cos" or "sin" if the value is one, whatever form it was brought into."""
    for _ in range(14):
        if value.op in ("cos", "sin"):
            return value.op
        name = named(value).lower()
        if value.op == "call" and value.args and "rotate" in name:
            return None
        for word in ("cos", "sin"):
            if word in re.split(r"[^a-z]+", name) or name.endswith(word):
                return word
        if value.op == "either":
            told = [trig(side) for side in value.args]
            return next((word for word in told if word), None)
        if value.op not in _TRACED or not value.args:
            return None
        value = value.args[0]
    return None


def _product(value: Value) -> tuple[str, Value, Value] | None:
    """("cos" or "sin", what it is multiplied with, the cos or sin) of a product with one of the two."""
    value = peel(value)
    if value.op == "neg":
        value = peel(value.args[0])
    if value.op != "mul" or len(value.args) != 2:
        return None
    for factor, other in (value.args, value.args[::-1]):
        word = trig(factor)
        if word is not None and trig(other) is None:
            return word, other, factor
    return None


def _by_cos_and_sin(unit: Unit, value: Value) -> set[str] | None:
    pair = [_product(arg) for arg in value.args]
    if pair[0] is None or pair[1] is None or {pair[0][0], pair[1][0]} != {"cos", "sin"}:
        return None
    with_cos, with_sin = sorted((item for item in pair if item is not None), key=lambda item: item[0])
    return _hazards(unit, with_cos, with_sin)


def _by_addcmul(unit: Unit, value: Value) -> set[str] | None:
    if len(value.args) < 3:
        return None
    words = [trig(arg) for arg in value.args[1:3]]
    if "sin" not in words and "cos" not in words:
        return None
    return {"rope_half_width_cos_sin"} | _per_batch(value.args[1]) | _float32(unit)


def _hazards(unit: Unit, with_cos: tuple[str, Value, Value], with_sin: tuple[str, Value, Value]) -> set[str]:
    found = _per_batch(with_cos[2]) | _float32(unit)
    layout = rotation(unit, with_sin[1])
    turned = layout is not None
    if layout is None:
        layout = pair_layout(with_cos[1]) or pair_layout(with_sin[1])
        if layout is not None:
            found.add("rope_half_width_cos_sin")
    if layout == INTERLEAVED:
        found.add("rope_interleave")
    if is_reversed(unit, with_sin[1]):
        found.add("rope_reversed")
    if layout is None and not _is_same(with_cos[1], with_sin[1]):
        found.add("rope_half_width_cos_sin")
    if (turned and _sliced(with_cos[1], layout)) or any(
        _sliced(item[2], HALF) for item in (with_cos, with_sin)
    ):
        found.add("non_contiguous")
    return found


def _is_same(one: Value, other: Value) -> bool:
    base = peel(one)
    return find(other, lambda item: item is base, 8) is not None


def _sliced(value: Value, layout: str | None) -> bool:
    """Whether an operand is a slice made here (other than the halves that a rotation splits into)."""
    for side in sides(value):
        inner = side
        while inner.op in PASSED and inner.op != "contiguous" and inner.args:
            inner = inner.args[0]
        if inner.op == "getitem" and layout is not None and _is_cut(inner.name):
            return True
        if inner.op == "part" and inner.args[0].op in _SPLITS and layout is not None and trig(inner) is None:
            return pair_layout_of(inner) is None
    return False


def pair_layout_of(value: Value) -> str | None:
    """The layout of the two halves of one split."""
    source = value.args[0]
    count = source.args[1].number() if len(source.args) > 1 else None
    return HALF if source.op == "chunk" and count == 2 else None


def _is_cut(index: str) -> bool:
    """Whether an index cuts a piece out of the last dimension: [..., :n], [..., n:], [..., ::2]."""
    last = index.replace(" ", "").strip("()").rpartition(",")[2]
    return ":" in last and last != ":" and "None" not in last


def _per_batch(cos: Value) -> set[str]:
    """cos[position_ids], or a dimension put in where the caller says: then there is a batch dimension."""
    value = cos
    for _ in range(12):
        if value.op == "unsqueeze" and len(value.args) > 1 and value.args[1].op == "param":
            return {"rope_per_batch_cos_sin"}
        if value.op == "getitem" and "position_ids" in value.name:
            return {"rope_per_batch_cos_sin"}
        if value.op not in _TRACED or not value.args:
            break
        value = value.args[0]
    return set()


def _float32(unit: Unit) -> set[str]:
    """Whether the rotation runs in float32 and comes back: a cast up, and a cast to a dtype that was asked for."""
    up = any(
        item.op == "float" or (item.op == "to" and any("float32" in arg.name for arg in item.args[1:]))
        for item in unit.of("float", "to")
    )
    down = any(
        item.op == "type_as"
        or (
            item.op == "to"
            and any("dtype" in arg.name or arg.op in ("attr", "param") for arg in _given(item))
        )
        for item in unit.of("to", "type_as")
    )
    return {"dtype_order"} if up and down else set()


def _given(cast: Value) -> list[Value]:
    return [*cast.args[1:], *(cast.kwargs or {}).values()]


def _complex(value: Value) -> set[str] | None:
    if find(value, lambda item: item.op == "view_as_complex", 4) is None:
        return None
    return {"rope_complex"}


def _by_matrix(value: Value) -> set[str] | None:
    """Pairs (..., 1, 2) times a stack of 2 x 2 rotations."""
    for one, other in (value.args, value.args[::-1]):
        is_pairs = one.op in ("reshape", "view", "unflatten") and [arg.number() for arg in one.args[-2:]] == [
            1,
            2,
        ]
        table = find(other, lambda item: item.op == "stack" or bool(_FREQUENCIES.search(named(item))), 5)
        if is_pairs and table is not None:
            return {"rope_interleave", "rope_half_width_cos_sin"} | _per_batch(other)
    return None


def _of_unit(unit: Unit) -> set[str]:
    found = set()
    if unit.dispatched:
        found.add("dispatch_elsewhere")
    if unit.mentions(_AXES):
        found.add("rope_2d")
    if any(_joins_rest(value) for value in unit.of("cat")):
        found |= {"rope_partial", "non_contiguous"}
    return found


def _joins_rest(joined: Value) -> bool:
    """cat((rotated, rest)): one part was computed, the other merely sliced off."""
    parts = joined.args[0].args if joined.args and joined.args[0].op == "tuple" else ()
    bare = [part for part in parts if peel(part).op in ("getitem", "part")]
    computed = [
        part for part in parts if find(part, lambda item: item.op in ("mul", "addcmul"), 5) is not None
    ]
    return (
        bool(bare)
        and bool(computed)
        and len(parts) == len(bare) + len(computed)
        and not any(peel(part).op == "neg" for part in parts)
    )
