"""The affinity replacements: assignment at a mask as a product, and where as lerp; both for finite floats only."""

from __future__ import annotations

import ast
import math

from fusionkit.identify.replacing.place import Place, call
from fusionkit.identify.replacing.replacement import Change, Unfit

_FINITE = "0 times infinity is not a number: both branches have to be finite everywhere"


def replace_mask_assignment(place: Place) -> list[Change]:
    """x[mask] = number, as x times what is kept, plus the number where it is not. In place, as the original is."""
    node = place.value.node
    held = None if node is None else place.statements.parent(node)
    if not isinstance(node, ast.Subscript) or not isinstance(held, ast.Assign) or len(held.targets) != 1:
        raise Unfit("the assignment at a mask is not written as x[mask] = value")
    number = _number(held.value)
    is_inverted = isinstance(node.slice, ast.UnaryOp) and isinstance(node.slice.op, ast.Invert)
    masked = node.slice.operand if isinstance(node.slice, ast.UnaryOp) and is_inverted else node.slice
    if not isinstance(masked, ast.Name) or not isinstance(node.value, ast.Name):
        raise Unfit("the mask or what it is laid on is no plain name")
    x, mask, wide = node.value.id, masked.id, place.fresh("assigned")
    taken = f"(~{mask})" if is_inverted else mask
    shape = f"tuple({mask}.shape) + (1,) * ({x}.dim() - {mask}.dim())"
    lines = [f"{wide} = {taken}.reshape({shape}).to({x}.dtype)"]
    text = f"{x}.mul_(1 - {wide})" + (f".add_({wide}, alpha={number!r})" if number else "")
    conditions = (f"{x}.is_floating_point()", f"{mask}.dtype == {place.in_function('bool')}")
    return [Change({held: text}, before={held: lines}, conditions=conditions, notes=(_FINITE,))]


def _number(node: ast.expr) -> float:
    try:
        value = ast.literal_eval(node)
    except ValueError as error:
        raise Unfit("what is assigned at the mask is no number") from error
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise Unfit("what is assigned at the mask is no finite number")
    return value


def replace_where(place: Place) -> list[Change]:
    """torch.where(mask, a, b) as lerp(b, a, mask)."""
    node = place.value.node
    if not isinstance(node, ast.Call) or node.keywords:
        raise Unfit("where is not called with three arguments in order")
    is_method = place.value.name == "method" and isinstance(node.func, ast.Attribute)
    first = (
        [node.func.value, node.args[0]]
        if is_method and isinstance(node.func, ast.Attribute)
        else node.args[:2]
    )
    if len(first) != 2 or len(node.args) != (2 if is_method else 3):
        raise Unfit("where is not called with three arguments in order")
    one, mask = (first[0], first[1]) if is_method else (first[1], first[0])
    other = node.args[-1]
    if not isinstance(one, ast.Name) or not isinstance(other, ast.Name):
        raise Unfit(
            "a branch of where is a number or an expression: its dtype and finiteness cannot be asked"
        )
    if any(
        word in name.lower()
        for name in (one.id, other.id)
        for word in ("min", "inf", "ids", "idx", "index", "mask")
    ):
        raise Unfit("a branch of where is called an index, a mask or a bound: lerp is for finite floats")
    text = call(place.in_function("lerp"), other.id, one.id, f"{place.tight(mask)}.to({one.id}.dtype)")
    conditions = (f"{one.id}.is_floating_point()", f"{one.id}.dtype == {other.id}.dtype")
    return [Change(place.put(node, text), conditions=conditions, notes=(_FINITE,))]
