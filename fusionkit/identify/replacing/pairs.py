"""A rotation written out by pairs: which tensor the pairs are of, which layout they have, and where they are joined."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from fusionkit.identify.replacing.place import Place
from fusionkit.identify.replacing.replacement import Unfit
from fusionkit.identify.rules.rotary import trig
from fusionkit.identify.rules.rotations import HALF, INTERLEAVED, pair_layout
from fusionkit.identify.source.values import CASTS, Value, find, peel

_FLATTENS = ("flatten", "reshape", "view", "view_as", "reshape_as")


@dataclass(frozen=True, slots=True)
class Pair:
    """x as a whole, one of its halves, cos and sin (of half width), the layout, the joined expression, all nodes."""

    x: Value
    first: Value
    cos: Value
    sin: Value
    layout: str
    end: ast.AST
    sorted_first: bool  # neighbours in, halves out
    parts: list[ast.AST]


def rotated_pair(place: Place) -> Pair:
    """The pair that a sum or difference belongs to. Raises Unfit where signs, layout or joining are others."""
    joined, low, high = _joined(place)
    layout, end = _layout(place, joined)
    if not isinstance(end.node, ast.AST):
        raise Unfit("the joined pair stands nowhere")
    return pair_of(low, high, layout, end.node, [item.node for item in (joined, end)])


def pair_of(low: Value, high: Value, layout: str, end: ast.AST, more: Sequence[ast.AST | None] = ()) -> Pair:
    """The pair of two results that are put into `layout`, at the code `end`. Raises Unfit like rotated_pair."""
    one, two = _terms(low), _terms(high)
    if low.op != "sub" or high.op != "add" or one is None or two is None:
        raise Unfit("the pair is not x1 * cos - x2 * sin and x2 * cos + x1 * sin")
    (x1, cos), (x2, sin) = one["cos"], one["sin"]
    if low.args[0] is not one["order"][0]:
        raise Unfit("the signs of the pair are others")
    if peel(two["cos"][0]) is not peel(x2) or peel(two["sin"][0]) is not peel(x1):
        raise Unfit("the two results are not of one pair")
    taken = {pair_layout(x1), pair_layout(x2)}
    if taken != {layout} and (taken, layout) != ({INTERLEAVED}, HALF):
        raise Unfit("the pairs are taken from one layout and put back into another")
    x = _whole(x1)
    if _whole(x2) is not x or _place(x1) != 0 or _place(x2) != 1:
        raise Unfit("the pair is not of one tensor, first and second in order")
    nodes = (*(item.node for item in (low, high, peel(x1), peel(x2))), *more, end)
    parts = [node for node in nodes if isinstance(node, ast.AST)]
    return Pair(x, x1, cos, sin, layout, end, taken != {layout}, parts)


def _joined(place: Place) -> tuple[Value, Value, Value]:
    """(cat or stack, its first and second part)."""
    front = [place.value]
    for _ in range(5):
        below: list[Value] = []
        for item in front:
            for user in place.users(item):
                if user.op in ("cat", "stack") and user.args and user.args[0].op == "tuple":
                    held = user.args[0].args
                    if len(held) == 2:
                        return user, peel(held[0]), peel(held[1])
                below.append(user)
        front = below
    raise Unfit("the two results are not joined by cat or stack")


def _terms(value: Value) -> dict[str, tuple[Value, Value]] | None:
    """{"cos": (factor, cos), "sin": (factor, sin), "order": (the cos product, the sin product)}."""
    found: dict[str, tuple[Value, Value]] = {}
    products: dict[str, Value] = {}
    for arg in value.args:
        inner = peel(arg)
        if inner.op != "mul" or len(inner.args) != 2:
            return None
        for factor, other in (inner.args, inner.args[::-1]):
            word = trig(factor)
            if word is not None and trig(other) is None:
                found[word], products[word] = (other, factor), arg
    if set(found) != {"cos", "sin"}:
        return None
    return {**found, "order": (products["cos"], products["sin"])}


def _layout(place: Place, joined: Value) -> tuple[str, Value]:
    """(layout of the result, the value that has the form of x again)."""
    dim = joined.arg(1, "dim")
    if dim is None or dim.number() != -1:
        raise Unfit("the pair is not joined along the last dimension")
    if joined.op == "cat":
        return HALF, joined
    users = place.users(joined)
    if len(users) != 1 or users[0].op not in _FLATTENS:
        raise Unfit("the stacked pair is not flattened where it is made")
    return INTERLEAVED, users[0]


def _whole(part: Value) -> Value:
    """The tensor that a member of a pair was taken from."""
    inner = peel(part, CASTS)
    if inner.op == "part":
        source = inner.args[0].args[0] if inner.args[0].args else inner
    elif inner.op == "getitem":
        source = inner.args[0]
    else:
        raise Unfit("the pair is not split off one tensor")
    depth = 3 if source.op == "unflatten" else 2  # its sizes are a tuple
    if source.op in ("reshape", "view", "unflatten") and find(source, lambda item: item.number() == 2, depth):
        source = source.args[0]
    return source


def _place(part: Value) -> int:
    """0 for the first of a pair, 1 for the second."""
    inner = peel(part, CASTS)
    if inner.op == "part":
        return int(inner.name)
    last = inner.name.replace(" ", "").strip("()").rpartition(",")[2]
    return 0 if last in ("::2", "0::2", "0") or (last.startswith(":") and not last.startswith("::")) else 1
