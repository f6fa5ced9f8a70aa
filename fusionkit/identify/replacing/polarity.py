"""What True means in a mask, as far as the code says it: torch keeps where it is True, the fused op drops."""

from __future__ import annotations

import ast

from fusionkit.identify.replacing.place import Place
from fusionkit.identify.rules.unit import Unit
from fusionkit.identify.source.values import CASTS, Value, peel, sides

LOWEST_KEPT = -1e4  # what is filled in at or below this drops: exp of it is 0 beside any score in use

_INVERSIONS = ("invert", "logical_not")
_BOOLEAN = (*_INVERSIONS, "compare", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "bool")
_FILLED = ("tensor", "full", "full_like")


def inverted(value: Value) -> Value | None:
    """What a mask is the inverse of; None where it is none."""
    inner = peel(value, CASTS)
    return inner.args[0] if inner.op in _INVERSIONS and inner.args else None


def is_boolean(value: Value) -> bool:
    """Whether a mask is boolean by the operation that makes it."""
    return value.op in _BOOLEAN


def dropping(place: Place, node: ast.expr) -> str:
    """The inverse of a boolean expression as source: of an inverse that which it inverts."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return place.text(node.operand)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "logical_not"
    ):
        return place.text(node.args[0] if node.args else node.func.value)
    return f"{place.tight(node)}.logical_not()"


def is_low(unit: Unit, fill: Value) -> bool:
    """Whether what a mask fills in is seen to drop: minus infinity, the least of a dtype, or -1e4 and below."""
    return all(_is_low(unit, peel(side, CASTS)) for side in sides(fill))


def _is_low(unit: Unit, fill: Value) -> bool:
    number = fill.number()
    if number is not None:
        return number <= LOWEST_KEPT
    if fill.op in _FILLED and fill.args:
        return is_low(unit, fill.args[-1])
    if fill.op in ("mul", "div") and len(fill.args) == 2:  # half of the least
        return is_low(unit, fill.args[0]) and (fill.args[1].number() or 0) > 0
    if fill.op == "neg" and fill.args:
        return _is_high(peel(fill.args[0], CASTS))
    if fill.op == "attr" and fill.name == "min":
        return bool(fill.args) and fill.args[0].op == "finfo"
    if fill.op == "global" and "." not in fill.name:
        return _is_low_constant(unit, fill.name)
    return fill.op == "call" and fill.name == "float" and _text(fill) in ("-inf", "-infinity")


def _is_high(value: Value) -> bool:
    number = value.number()
    if number is not None:
        return number >= -LOWEST_KEPT
    if value.op == "attr" and value.name == "max":
        return bool(value.args) and value.args[0].op == "finfo"
    return value.name in ("torch.inf", "math.inf", "numpy.inf", "inf") or (
        value.op == "call" and value.name == "float" and _text(value) in ("inf", "infinity")
    )


def _text(call: Value) -> str:
    """The text that float(...) was given, in lower case without quotes."""
    return call.args[0].name.strip("'\" ").lower() if call.args else ""


def _is_low_constant(unit: Unit, name: str) -> bool:
    """Whether a name of the module is bound once, to a number that drops."""
    bound = [
        node.value
        for node in ast.walk(unit.file.tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id == name
    ]
    if len(bound) != 1:
        return False
    try:
        number = ast.literal_eval(bound[0])
    except ValueError:
        return ast.unparse(bound[0]) in ("float('-inf')", "-float('inf')", "-torch.inf", "-math.inf")
    return isinstance(number, (int, float)) and number <= LOWEST_KEPT
