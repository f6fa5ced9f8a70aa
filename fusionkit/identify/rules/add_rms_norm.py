"""A residual addition that goes straight into a root mean square norm."""

from __future__ import annotations

from collections.abc import Iterator

from fusionkit.identify.rules.rms_norm import find_rms_norms
from fusionkit.identify.rules.unit import Found, Unit, named
from fusionkit.identify.source.files import SourceClass
from fusionkit.identify.source.project import lineage
from fusionkit.identify.source.values import CASTS, Value, factors, peel, sides

OP = "npu_add_rms_norm"
_TORCH = "torch.nn.RMSNorm"


def find_added_norms(unit: Unit) -> Iterator[Found]:
    """Every norm call of a layer whose input is a sum made in the same function."""
    if not unit.runs or unit.cls is None:
        return
    for call in unit.of("module", "call"):
        operand = _operand(call)
        if operand is None or not _is_sum(operand):
            continue
        for name, cls in unit.class_of(call):
            hazards = norm_hazards(name, cls)
            if hazards is not None:
                yield Found(OP, call, hazards)
                break


def _operand(call: Value) -> Value | None:
    if call.op == "module":
        return call.args[0] if call.args else None
    return call.args[1] if not call.name and len(call.args) > 1 else None


def _is_sum(value: Value) -> bool:
    """Whether a branch of the value is a sum of two tensors of one shape."""
    front, seen = [value], set[int]()
    while front:
        for side in sides(peel(front.pop())):
            inner = peel(side)
            if id(inner) in seen:
                continue
            seen.add(id(inner))
            if inner.op == "either":
                front.append(inner)
            elif inner.op == "add" and not any(_is_broadcast(arg) for arg in inner.args):
                return True
    return False


def _is_broadcast(value: Value) -> bool:
    """Whether an operand is visibly no residual: a number, or a tensor of another shape (an embedding, noise)."""
    if value.number() is not None:
        return True
    for factor in factors(value, CASTS):
        if factor.op == "unsqueeze" or (factor.op == "getitem" and "None" in factor.name):
            return True
        if any(word in named(factor) for word in ("noise", "embed", "temb", "pos_", "shift")):
            return True
    return False


def norm_hazards(name: str, cls: SourceClass | None) -> frozenset[str] | None:
    """The hazards that a norm hands on to its layer; None if the class is no root mean square norm."""
    if name == _TORCH:
        return frozenset()
    if cls is None:
        last = name.rpartition(".")[2].lower()
        return frozenset() if "rmsnorm" in last or "rms_norm" in last else None
    for item in lineage(cls):
        found = [
            place
            for method in item.methods.values()
            if method.name != "__init__"
            for place in find_rms_norms(Unit(item.file, method, item))
        ]
        if found:
            return frozenset({"one_plus_weight"}) & frozenset().union(*(place.hazards for place in found))
    if any(base == _TORCH for item in lineage(cls) for base in item.bases):
        return frozenset()
    return None
