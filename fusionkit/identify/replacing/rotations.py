"""npu_rotary_mul in place of a rotary embedding: over full cos and sin, over halves of them, or a complex product."""

from __future__ import annotations

import ast

from fusionkit.identify.replacing.dtypes import FLOAT32, dtype_of
from fusionkit.identify.replacing.operands import Operand, Start, grouped
from fusionkit.identify.replacing.pairs import Pair, rotated_pair
from fusionkit.identify.replacing.place import Place, call, factor_nodes
from fusionkit.identify.replacing.replacement import Change, Unfit
from fusionkit.identify.replacing.rotary_forms import (
    asked,
    in_front,
    over_all_heads,
    rank_told,
    sized_by,
    told_layout,
)
from fusionkit.identify.replacing.slices import is_sliced, sliced_pair
from fusionkit.identify.replacing.turned import complex_product
from fusionkit.identify.rules.rotary import trig
from fusionkit.identify.rules.rotations import HALF, INTERLEAVED, rotation
from fusionkit.identify.source.values import FORMS, Value, find, peel

_OP = "torch_npu.npu_rotary_mul"
_FORM = "the op takes few broadcast forms of cos and sin: 11SD, B1SD, BNSD and their like (half), one sequence axis (interleave)"
_ONCE = "in half precision the op rounds once, the original after each product"
_WIDTH = "the head size has to be even, and below 896; batch and heads each below 1000"
_NOTES = (_FORM, _WIDTH, _ONCE)


def replace_rotation(place: Place) -> list[Change]:
    """The change for one rotation. Raises Unfit where its pairs or its layout cannot be told from the code."""
    if place.value.op == "mul":
        return [_of_complex(place)]
    if place.value.op not in ("add", "sub"):
        raise Unfit("the rotation is not written as a sum of two products")
    products = [_product(arg) for arg in place.value.args]
    words = {word for word, *_ in products}
    if words != {"cos", "sin"}:
        raise Unfit("the rotation is not written with cos and sin")
    (_, x, cos, with_cos), (_, turned, sin, with_sin) = sorted(products, key=lambda item: item[0])
    if rotation(place.unit, turned) is None:
        return [_of_slices(place) if is_sliced(place) else _of_pair(place)]
    if place.value.op != "add" or find(turned, lambda item: item is peel(x), 10) is None:
        raise Unfit("what is turned is not what is multiplied with cos")
    return [_of_full_width(place, (x, cos, sin), (with_cos, with_sin), turned)]


def _product(value: Value) -> tuple[str, Value, Value, Value]:
    """("cos" or "sin", the other factor, the cos or sin, the product)."""
    inner = peel(value)
    if inner.op == "mul" and len(inner.args) == 2:
        for factor, other in (inner.args, inner.args[::-1]):
            word = trig(factor)
            if word is not None and trig(other) is None:
                return word, other, factor, inner
    raise Unfit("the rotation is not written as a sum of two products")


def _of_full_width(
    place: Place, operands: tuple[Value, Value, Value], products: tuple[Value, Value], turned: Value
) -> Change:
    x, cos, sin = operands
    node = place.value.node
    if node is None:
        raise Unfit("the rotation stands nowhere")
    parts = [node, *(item.node for item in products if item.node is not None)]
    inside = {id(item) for item in ast.walk(node)}
    start = place.start(parts)
    layout, test = told_layout(place, start, turned)
    found: list[Operand] = []
    for value, product in ((x, products[0]), (cos, products[0]), (sin, products[1])):
        if id(product.node) in inside:
            pair = factor_nodes(product)
            held = pair[0] if product.args[0] is value else pair[1]
            found.append(Operand(grouped(place.text(held), held), frozenset()))
        else:
            found.append(start.operand(value))
    if layout != HALF and over_all_heads(turned):
        raise Unfit("the rotation runs over all heads at once: the op rotates heads, of 895 at most")
    texts = [item.text for item in found]
    conditions = (*_same_dtype(x, cos, texts), *_asked(cos, texts[0], texts[1], layout))
    texts[1:] = [in_front(rank_told(cos), sized_by(texts[0]), text) for text in texts[1:]]
    if "non_contiguous" in place.hazards and find(x, lambda item: item.op in ("getitem", "part"), 2):
        texts[0] = f"{texts[0]}.contiguous()"
    names = frozenset().union(*(item.names for item in found))
    return Change(place.put(node, call(_OP, *texts, *_mode(layout, test))), tuple(parts), at_start=names,
                  conditions=conditions, notes=_NOTES)  # fmt: skip


def _mode(layout: str, test: str) -> list[str]:
    """The argument that chooses the mode; half is the op's default."""
    told = {HALF: [], INTERLEAVED: ['rotary_mode="interleave"']}
    return told.get(layout, [f'rotary_mode="interleave" if {test} else "half"'])


def _asked(cos: Value, x_text: str, cos_text: str, layout: str, width: int = 1) -> tuple[str, ...]:
    told = rank_told(cos)
    if told and layout == HALF:
        return ()
    cos_name = "" if layout == HALF else sized_by(cos_text)
    return asked(sized_by(x_text), cos_name, told, layout, width)


def _same_dtype(x: Value, cos: Value, texts: list[str]) -> tuple[str, ...]:
    """The op rounds cos to the dtype of x and returns that: only where both agree is it what promotion gives."""
    if dtype_of(x, {}) == FLOAT32:
        return ()
    held = [_base(text) for text in texts[:2]]
    if held[0] == held[1] or find(cos, lambda item: item.op in ("to", "type_as") and _is_of(item, x), 4):
        return ()
    return (f"{held[1]}.dtype == {held[0]}.dtype",)


def _is_of(cast: Value, x: Value) -> bool:
    return any(find(arg, lambda item: item is peel(x), 3) is not None for arg in cast.args[1:])


def _base(text: str) -> str:
    """The name that an operand's text is a form of: its dtype is the operand's."""
    node = ast.parse(text, mode="eval").body
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return ast.unparse(node)
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FORMS:
            node = node.func.value
        else:
            raise Unfit("the dtype of an operand of the rotation cannot be asked")
    return node.id


def _of_pair(place: Place) -> Change:
    """Both halves of a rotation, joined: x1 * cos - x2 * sin and x2 * cos + x1 * sin."""
    pair = rotated_pair(place)
    start = place.start(pair.parts)
    x, cos, sin = (start.operand(item) for item in (pair.x, pair.cos, pair.sin))
    conditions = _same_dtype(pair.x, pair.cos, [x.text, cos.text])
    text = x.text
    if dtype_of(pair.first, {}) == FLOAT32 and dtype_of(pair.x, {}) != FLOAT32:
        text, conditions = f"{x.text}.float()", ()
    if pair.sorted_first:
        text = f"{text}.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)"
    fitting = [in_front(rank_told(pair.cos), sized_by(x.text), item.text) for item in (cos, sin)]
    wide = [_widened(place, item, pair) for item in fitting]
    conditions = (*conditions, *_asked(pair.cos, x.text, cos.text, pair.layout, 2))
    return Change(place.put(pair.end, call(_OP, text, *wide, *_mode(pair.layout, ""))), tuple(pair.parts),
                  at_start=x.names | cos.names | sin.names, conditions=conditions, notes=_NOTES)  # fmt: skip


def _of_slices(place: Place) -> Change:
    """Both halves of a rotation over cos of float32, which are rounded to the dtype of x where they are written."""
    sliced = sliced_pair(place)
    pair, start = sliced.pair, place.start(sliced.pair.parts)
    x, cos, sin = (start.operand(item) for item in (pair.x, pair.cos, pair.sin))
    fitting = [in_front(rank_told(pair.cos), sized_by(x.text), item.text) for item in (cos, sin)]
    wide = [_widened(place, item, pair) for item in fitting]
    text = f"{call(_OP, f'{x.text}.float()', *wide, *_mode(pair.layout, ''))}.to({x.text}.dtype)"
    asked_dtypes = [f"{_base(item.text)}.dtype == {place.in_function('float32')}" for item in (cos, sin)]
    conditions = (*asked_dtypes, *_asked(pair.cos, x.text, cos.text, pair.layout, 2))
    return Change({sliced.first: "", sliced.second: f"{sliced.into} = {text}"}, tuple(pair.parts),
                  at_start=x.names | cos.names | sin.names, conditions=conditions, notes=_NOTES)  # fmt: skip


def _widened(place: Place, text: str, pair: Pair) -> str:
    """cos or sin of full width from one of half, in the layout of the pairs."""
    if pair.layout == INTERLEAVED:
        return f"{text}.repeat_interleave(2, dim=-1)"
    return f"{place.in_function('cat')}(({text}, {text}), dim=-1)"


def _of_complex(place: Place) -> Change:
    turned = complex_product(place)
    start: Start = place.start(turned.parts)
    x, freqs = start.operand(turned.x), start.operand(turned.freqs)
    shaped = in_front(rank_told(turned.freqs), sized_by(x.text), freqs.text)
    wide = [f"{shaped}.{part}.repeat_interleave(2, dim=-1)" for part in ("real", "imag")]
    given = x.text if dtype_of(turned.x, {}) == FLOAT32 else f"{x.text}.float()"
    text = call(_OP, given, *wide, 'rotary_mode="interleave"')
    base = sized_by(freqs.text)
    conditions = (f"{base}.is_complex()", *_asked(turned.freqs, x.text, freqs.text, INTERLEAVED, 2))
    return Change(place.put(turned.end, text), tuple(turned.parts), at_start=x.names | freqs.names,
                  conditions=conditions, notes=_NOTES)  # fmt: skip
