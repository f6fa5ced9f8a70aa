"""GELU by itself: called, built, or written out."""

from __future__ import annotations

from collections.abc import Iterator

from fusionkit.identify.rules.activations import GELU, activation
from fusionkit.identify.rules.unit import Found, Unit
from fusionkit.identify.source.values import Value, sides

OP = "npu_gelu"
_BUILT = (
    "GELU",
    "NewGELUActivation",
    "GELUActivation",
    "QuickGELUActivation",
    "QuickGELU",
    "FastGELUActivation",
)


def find_gelus(unit: Unit) -> Iterator[Found]:
    """Every GELU that the code itself names; one that the configuration chooses is written elsewhere."""
    dispatched = frozenset({"dispatch_elsewhere"}) if unit.dispatched and not unit.builds else frozenset()
    if unit.builds:
        for built in unit.flow.attributes.values():
            for side in sides(built):
                if side.op == "global" and "gelu" in side.name.rpartition(".")[2].lower():
                    yield Found(OP, side)
    for value in unit.flow.values:
        if unit.builds:
            if _is_built(value):
                yield Found(OP, value)
        elif unit.runs and _is_computed(unit, value):
            yield Found(OP, value, dispatched)


def _is_built(value: Value) -> bool:
    if value.op == "call":
        return value.name.rpartition(".")[2] in _BUILT
    return (
        value.op == "getitem"
        and "ACT2" in value.args[0].name
        and "gelu" in value.args[1].name.lower()
        and (value.args[1].op == "const")
    )


def _is_computed(unit: Unit, value: Value) -> bool:
    if value.op == "gelu":
        return True
    if value.op == "call" and value.name.rpartition(".")[2] in ("gelu", "quick_gelu", "gelu_new"):
        return True
    if value.op == "getitem":
        return _is_built(value)
    if value.op != "mul":
        return False
    found = activation(unit, value)
    return found is not None and found[0] == GELU
