"""Which pairs a rotation turns: halves of the last dimension, or neighbours in it."""

from __future__ import annotations

from collections.abc import Iterator

from fusionkit.identify.rules.unit import Unit
from fusionkit.identify.source.project import find_function
from fusionkit.identify.source.values import Value, find, peel, sides

HALF, INTERLEAVED = "half", "interleaved"
_SPLITS = ("chunk", "split", "tensor_split", "unbind")


def rotation(unit: Unit, value: Value) -> str | None:
    """The layout if `value` is (-x2, x1) or (x2, -x1) of some x, made here or by a function that is called."""
    return next((layout for layout, _ in _turns(unit, value)), None)


def is_reversed(unit: Unit, value: Value) -> bool:
    """Whether `value` is (x2, -x1): a rotation by the negative angle."""
    return any(backwards for _, backwards in _turns(unit, value))


def _turns(unit: Unit, value: Value) -> Iterator[tuple[str, bool]]:
    """(layout, whether it turns backwards) for each way in which `value` may be made."""
    for side in sides(peel(value)):
        side = peel(side)
        if side.op == "call" and side.args:
            found = find_function(unit.file, side.name)
            if found is not None:
                for given in found[0].flow(found[1]).returns:
                    yield from _joined(given)
            elif "rotate_half" in side.name:
                yield HALF, False
            elif "rotate_every_two" in side.name or "interleave" in side.name:
                yield INTERLEAVED, False
        yield from _joined(side)


def _joined(value: Value) -> Iterator[tuple[str, bool]]:
    """Of cat((-x2, x1)) or stack((-x2, x1), -1)."""
    inner = peel(value)
    parts = inner.args[0].args if inner.op in ("cat", "stack") and inner.args[0].op == "tuple" else ()
    negated = [peel(part).op == "neg" for part in parts]
    if negated in ([True, False], [False, True]):
        yield (HALF if inner.op == "cat" else INTERLEAVED), negated[1]


def pair_layout(value: Value) -> str | None:
    """The layout of one member of a pair: x[..., 0::2], a part of chunk(2, -1), of reshape(..., -1, 2).unbind(-1)."""
    for side in sides(peel(value)):
        side = peel(side)
        if side.op == "getitem":
            layout = _by_index(side)
        elif side.op == "part":
            layout = _by_split(side.args[0])
        else:
            layout = None
        if layout is not None:
            return layout
    return None


def _by_index(item: Value) -> str | None:
    last = item.name.replace(" ", "").strip("()").rpartition(",")[2]
    if last in ("::2", "0::2", "1::2"):
        return INTERLEAVED
    if last in ("0", "1") and "..." in item.name:
        return INTERLEAVED if _ends_in_two(item.args[0]) else None
    if last.startswith(":") or last.endswith(":"):
        return HALF if last not in (":", "::") else None
    if item.args[0].op in _SPLITS:
        return _by_split(item.args[0])
    return None


def _by_split(split: Value) -> str | None:
    if split.op == "unbind":
        dims = [arg.number() for arg in (*split.args[1:], *(split.kwargs or {}).values())]
        if dims and dims[0] == -2:
            return HALF
        return INTERLEAVED if _ends_in_two(split.args[0]) else None
    if split.op in _SPLITS:
        return INTERLEAVED if _ends_in_two(split.args[0]) else HALF
    return None


def _ends_in_two(value: Value) -> bool:
    """Whether the value was brought into the form (..., n, 2)."""
    shaped = find(value, lambda item: item.op in ("reshape", "view", "unflatten", "rearrange"), 4)
    if shaped is None:
        return False
    last = shaped.args[-1]
    last = last.args[-1] if last.op == "tuple" and last.args else last
    return last.number() == 2
