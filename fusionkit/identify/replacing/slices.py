"""A rotation whose two results are written into the slices of an empty tensor: out[..., 0::2] = ..., out[..., 1::2] = ..."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from fusionkit.identify.replacing.pairs import Pair, pair_of
from fusionkit.identify.replacing.place import Place
from fusionkit.identify.replacing.replacement import Unfit
from fusionkit.identify.rules.rotations import INTERLEAVED
from fusionkit.identify.source.values import Value, peel

_EMPTY = ("empty_like", "zeros_like")


@dataclass(frozen=True, slots=True)
class Slices:
    """The pair, the name of what it is written into, and the two statements that write it."""

    pair: Pair
    into: str
    first: ast.Assign
    second: ast.Assign


def is_sliced(place: Place) -> bool:
    """Whether a result is written into a slice."""
    return any(user.op == "setitem" for user in place.users(place.value))


def sliced_pair(place: Place) -> Slices:
    """The pair that a result belongs to. Raises Unfit where it does not fill the whole of a tensor like x."""
    held = next(user for user in place.users(place.value) if user.op == "setitem")
    others = [user for user in (held.args[0], *place.users(held)) if user.op == "setitem"]
    if len(others) != 1:
        raise Unfit("the two results are not written into two slices, one after the other")
    first, second = (others[0], held) if held.args[0] is others[0] else (held, others[0])
    if [user for user in place.users(first) if user is not second] or second.args[0] is not first:
        raise Unfit("what the results are written into is read between them")
    parts = {_part(item): peel(item.args[2]) for item in (first, second)}
    if set(parts) != {"0", "1"}:
        raise Unfit("the two slices are not every second number, from 0 and from 1 on")
    one, two = (_statement(place, item) for item in (first, second))
    pair = pair_of(parts["0"], parts["1"], INTERLEAVED, two, [one])
    base = first.args[0]
    if base.name.rpartition(".")[2] not in _EMPTY and base.op not in _EMPTY:
        raise Unfit("the results are not written into an empty tensor")
    if not base.args or peel(base.args[0]) is not peel(pair.x):
        raise Unfit("the results are written into a tensor that is not like x")
    target = two.targets[0]
    into = target.value if isinstance(target, ast.Subscript) else None
    if not isinstance(into, ast.Name):
        raise Unfit("what the results are written into has no name")
    return Slices(pair, into.id, one, two)


def _part(item: Value) -> str:
    """ "0" for [..., 0::2], "1" for [..., 1::2], "" for another index."""
    told = item.name.replace(" ", "").strip("()")
    return {"...,0::2": "0", "...,::2": "0", "...,1::2": "1"}.get(told, "")


def _statement(place: Place, item: Value) -> ast.Assign:
    held = None if item.node is None else place.statements.statement(item.node)
    if not isinstance(held, ast.Assign) or len(held.targets) != 1 or held.targets[0] is not item.node:
        raise Unfit("a slice is not written as out[...] = result")
    return held
