"""A rotation as a complex product: the tensor whose neighbours are its pairs, and the complex frequencies."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from fusionkit.identify.replacing.place import Place
from fusionkit.identify.replacing.replacement import Unfit
from fusionkit.identify.source.values import Value, peel

_FLATTENS = ("flatten", "reshape", "view")


@dataclass(frozen=True, slots=True)
class Turned:
    """x (real, as a whole), the complex frequencies, the expression that is real and flat again, all nodes."""

    x: Value
    freqs: Value
    end: ast.AST
    parts: list[ast.AST]


def complex_product(place: Place) -> Turned:
    """The rotation that a complex product belongs to. Raises Unfit where it is not x's neighbours that it turns."""
    for pairs, freqs in (place.value.args, place.value.args[::-1]):
        made = peel(pairs)
        if made.op != "view_as_complex" or not made.args:
            continue
        shaped = made.args[0]
        while shaped.op in ("contiguous",):
            shaped = shaped.args[0]
        if shaped.op not in ("reshape", "view", "unflatten") or (
            shaped.args[-1].number() != 2 and not _ends_in_two(shaped)
        ):
            raise Unfit("the complex numbers are not made of neighbours")
        end = _end(place)
        nodes = [item.node for item in (place.value, made, shaped, end) if isinstance(item.node, ast.AST)]
        if not isinstance(end.node, ast.AST):
            break
        return Turned(shaped.args[0], freqs, end.node, nodes)
    raise Unfit("the complex product is not of view_as_complex and frequencies")


def _ends_in_two(shaped: Value) -> bool:
    last = shaped.args[-1]
    return last.op == "tuple" and bool(last.args) and last.args[-1].number() == 2


def _end(place: Place) -> Value:
    item = place.value
    for wanted in (("view_as_real",), _FLATTENS):
        users = place.users(item)
        if len(users) != 1 or users[0].op not in wanted:
            raise Unfit("the complex result is not made real and flat where it is made")
        item = users[0]
    return item
