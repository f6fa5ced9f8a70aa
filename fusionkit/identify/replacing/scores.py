"""Attention scores as they were made: from query times key through scale and mask to the softmax."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from fusionkit.identify.replacing.replacement import Unfit
from fusionkit.identify.rules.attention_hazards import has_product
from fusionkit.identify.source.values import CASTS, Value, find, peel

_PRODUCTS = ("matmul",)


@dataclass(eq=False)
class Scores:
    """`scales`: ("mul" or "div", factor). `masks`: (how, mask): "add", "drop" or "keep". `caps`: soft caps that may be None.

    `parts`: every value on the way. `optional`: whether the mask stands in a branch.
    """

    product: Value
    scales: list[tuple[str, Value]] = field(default_factory=list)
    masks: list[tuple[str, Value]] = field(default_factory=list)
    caps: list[Value] = field(default_factory=list)
    parts: list[Value] = field(default_factory=list)
    optional: bool = False


def scores_of(value: Value) -> Scores:
    """How the softmax's input was made. Raises Unfit at a step that the op does not have."""
    told = Scores(value)
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
    if value.op == "masked_fill" and len(value.args) > 1:
        told.masks.append(_drop(value.args[1]))
        return value.args[0]
    if value.op == "where" and len(value.args) == 3:
        condition, one, other = value.args
        keeps = has_product(one)
        told.masks.append(("keep" if keeps else "drop", condition))
        return one if keeps else other
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


def _drop(condition: Value) -> tuple[str, Value]:
    inner = peel(condition, CASTS)
    if inner.op in ("invert", "logical_not"):
        return "keep", inner.args[0]
    return "drop", condition


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
