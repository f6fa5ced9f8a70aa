"""Attention scores as they were made: from query times key through scale and mask to the softmax."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from fusionkit.identify.replacing.polarity import inverted, is_low
from fusionkit.identify.replacing.replacement import Unfit
from fusionkit.identify.rules.attention_hazards import has_product
from fusionkit.identify.rules.unit import Unit
from fusionkit.identify.source.values import CASTS, Value, find

_PRODUCTS = ("matmul",)


@dataclass(eq=False)
class Scores:
    """`scales`: ("mul" or "div", factor). `masks`: (how, mask): "add", "drop" or "keep". `caps`: soft caps that may be None.

    `parts`: every value on the way. `optional`: whether the mask stands in a branch.
    """

    unit: Unit
    product: Value
    scales: list[tuple[str, Value]] = field(default_factory=list)
    masks: list[tuple[str, Value]] = field(default_factory=list)
    caps: list[Value] = field(default_factory=list)
    parts: list[Value] = field(default_factory=list)
    optional: bool = False


def scores_of(unit: Unit, value: Value) -> Scores:
    """How the softmax's input was made. Raises Unfit at a step that the op does not have."""
    told = Scores(unit, value)
    while value.op not in _PRODUCTS:
        value = _step(value, told)
        if len(told.parts) > 40:
            raise Unfit("the scores are made in too many steps")
    told.product = value
    told.parts.append(value)
    return told


def _step(value: Value, told: Scores) -> Value:
    """Note one step, and give what it was applied to."""
    told.parts.append(value)
    if value.op in CASTS:
        return value.args[0]
    if value.op in ("mul", "div") and len(value.args) == 2:
        inner, factor = _sides(value)
        told.scales.append((value.op, factor))
        return inner
    if value.op == "add" and len(value.args) == 2:
        inner, mask = _sides(value)
        if not _is_mask(mask):
            raise Unfit("a bias is added to the scores: pse would have to carry it")
        told.masks.append(("add", mask))
        return inner
    if value.op in ("masked_fill", "where"):
        return _filled(value, told)
    if value.op == "either":
        return _branch(value, told)
    raise Unfit(f"the scores go through {value.name or value.op}, which the op does not have")


def _sides(value: Value) -> tuple[Value, Value]:
    for inner, other in (value.args, value.args[::-1]):
        if has_product(inner) and not has_product(other):
            return inner, other
    raise Unfit("the scores cannot be told from what they are combined with")


def _is_mask(value: Value) -> bool:
    return find(value, lambda item: "mask" in (item.name or item.label), 5) is not None


def _filled(value: Value, told: Scores) -> Value:
    """Note what masked_fill or where drops, and give the scores that it was applied to."""
    scores: Value | None
    if value.op == "masked_fill":
        mask, fill = value.arg(1, "mask"), value.arg(2, "value")
        scores, keeps = value.args[0], False
    else:
        first = 1 if value.name == "method" else 0  # scores.where(mask, low)
        order = (1, 0, 2) if first else (0, 1, 2)
        mask, one, other = (value.args[index] if index < len(value.args) else None for index in order)
        keeps = one is not None and has_product(one)
        scores, fill = (one, other) if keeps else (other, one)
    if mask is None or fill is None or scores is None:
        raise Unfit("a mask is laid on the scores by arguments that cannot be told apart")
    if not is_low(told.unit, fill):
        raise Unfit("what the mask fills in is not seen to drop: no large negative number")
    inner = inverted(mask)
    told.masks.append(("keep" if keeps is (inner is None) else "drop", mask if inner is None else inner))
    return scores


def _branch(value: Value, told: Scores) -> Value:
    """Scores that a branch may have changed: what it added counts as optional, a soft cap as one that may be off."""
    sides = sorted(value.args, key=lambda item: _depth(item, value.args))
    shorter, longer = sides[0], sides[-1]
    if len(sides) != 2 or find(longer, lambda item: item is shorter, 12) is None:
        raise Unfit("the scores depend on a branch")
    cap = find(longer, lambda item: item.op == "tanh", 3)
    if cap is not None:
        _note_cap(longer, shorter, told)
        return shorter
    item = longer
    before = (len(told.scales), len(told.masks))
    while item is not shorter:
        item = _step(item, told)
    if len(told.scales) != before[0]:
        raise Unfit("the scale depends on a branch")
    told.optional = told.optional or len(told.masks) != before[1]
    return shorter


def _depth(item: Value, sides: tuple[Value, ...]) -> int:
    """How many of the other sides an item is made of."""
    return sum(find(item, lambda inner, other=other: inner is other, 12) is not None for other in sides)  # type: ignore[misc]


def _note_cap(longer: Value, shorter: Value, told: Scores) -> None:
    factor = find(longer, lambda item: item.op in ("param", "attr") and "cap" in item.name, 4)
    if factor is None:
        raise Unfit("a soft cap bends the scores")
    told.caps.append(factor)
    item = longer
    while item is not shorter and item.args:
        told.parts.append(item)
        item = next((arg for arg in item.args if find(arg, lambda inner: inner is shorter, 6)), shorter)


def statement_nodes(told: Scores) -> list[ast.AST]:
    """The expressions of all steps."""
    return [item.node for item in told.parts if isinstance(item.node, ast.expr)]
