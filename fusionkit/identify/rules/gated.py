"""Gated activations: silu(a) * b and gelu(a) * b, a and b two projections or two halves of one."""

from __future__ import annotations

from collections.abc import Iterator

from fusionkit.identify.rules.activations import GELU, SILU, activation, sigmoid_scaled
from fusionkit.identify.rules.unit import Found, Unit, named
from fusionkit.identify.source.values import PASSED, Value, factors, find, peel, sides

OPS = {SILU: "npu_swiglu", GELU: "npu_geglu"}
_SPLITS = ("chunk", "split", "tensor_split", "unbind", "split_with_sizes")
_BETWEEN = PASSED | {"dropout", "clamp"}


def find_gates(unit: Unit) -> Iterator[Found]:
    """Every product of an activated tensor with another one."""
    if not unit.runs:
        return
    for product in unit.of("mul"):
        if len(product.args) != 2:
            continue
        for gate, other in (product.args, product.args[::-1]):
            found = _gate(unit, gate)
            if found is not None and _is_other(unit, other, found[1]) and activation(unit, product) is None:
                kind, inner, spelled = found
                if kind == GELU and sigmoid_scaled(spelled) and (_is_bent(inner) or _is_bent(other)):
                    kind = SILU  # a clipped SwiGLU with alpha 1.702, which is no GELU for its clamp and bias
                yield Found(OPS[kind], product, _hazards(unit, spelled, inner, other))
                break


def _gate(unit: Unit, value: Value) -> tuple[str, Value, Value] | None:
    for side in sides(peel(value, _BETWEEN)):
        side = peel(side, _BETWEEN)
        found = activation(unit, side)
        if found is not None:
            return (*found, side)
    return None


def _is_other(unit: Unit, other: Value, activated: Value) -> bool:
    """Whether the second factor is a tensor of its own: no number, parameter or weight, and not what is activated."""
    for side in sides(peel(other)):
        side = peel(side)
        if side.number() is not None or side.op in ("const", "global", "sigmoid", "compare", "invert"):
            return False
        if side is peel(activated) or any(side is item for item in sides(peel(activated))):
            return False
        if side.op == "attr" and side.args[0].name == "self":
            return False
        if _is_mask(side):
            return False
        found = activation(unit, side)
        if found is not None and peel(found[1]) is peel(activated):
            return False
    return True


def _is_mask(value: Value) -> bool:
    return "mask" in named(value) or (bool(value.args) and "mask" in named(value.args[0]))


def _hazards(unit: Unit, gate: Value, activated: Value, other: Value) -> frozenset[str]:
    found = set()
    places = (_place(activated), _place(other))
    if (
        places[0] is not None
        and places[1] is not None
        and places[0][0] is places[1][0]
        and places[0][1] > places[1][1]
    ):
        found.add("gate_second_half")
    if (
        sigmoid_scaled(gate)
        or _is_bent(activated)
        or _is_bent(other)
        or any(_is_bent(item) for item in factors(other))
    ):
        found.add("clamp_or_bias_in_gate")
    if unit.dispatched:
        found.add("dispatch_elsewhere")
    if unit.depends_on_data:
        found.add("dynamic_shape")
    for operand in (activated, other):
        if _is_piece(operand, places):
            found.add("non_contiguous")
    return frozenset(found)


def _place(value: Value) -> tuple[Value, int] | None:
    """(what was split, which part) of a half; slices [..., :n] and [..., n:] count as parts 0 and 1."""
    value = peel(value, _BETWEEN)
    if value.op == "part" and value.args[0].op in (*_SPLITS, "call_method"):
        return value.args[0], int(value.name)
    if value.op == "getitem" and value.args[0].op in _SPLITS and value.args[1].number() is not None:
        return value.args[0], int(value.args[1].number() or 0)
    if value.op == "getitem":
        last = value.name.replace(" ", "").rpartition(",")[2]
        if last.startswith(":") and not last.startswith("::"):
            return value.args[0], 0
        if last.endswith(":") or last.startswith("1::"):
            return value.args[0], 1
    return None


def _is_bent(value: Value) -> bool:
    """Whether a clamp or an added constant lies on the way to the operand."""
    for side in sides(peel(value)):
        side = peel(side)
        if side.op in ("clamp", "minimum", "maximum"):
            return True
        if side.op == "add" and any(arg.number() is not None for arg in side.args):
            return True
        if side.op == "mul" and any(peel(arg).op == "tanh" for arg in side.args):
            return True
    return False


def _is_piece(value: Value, places: tuple[tuple[Value, int] | None, ...]) -> bool:
    """Whether an operand is a slice or transpose made here, other than the halves of one split."""
    inner = value
    while inner.op in ("to", "float", "contiguous", "clamp"):
        if inner.op == "contiguous":
            return False
        inner = inner.args[0]
    if inner.op in ("transpose", "permute", "movedim"):
        return True
    halves = places[0] is not None and places[1] is not None and places[0][0] is places[1][0]
    return (
        inner.op in ("getitem", "part")
        and not halves
        and _place(inner) is not None
        and find(inner, lambda item: item.op in _SPLITS, 1) is not None
    )
