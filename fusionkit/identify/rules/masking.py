"""Masked softmax outside attention, and the two affinity replacements: assignment at a mask, and where."""

from __future__ import annotations

from collections.abc import Iterator

from fusionkit.identify.rules.unit import Found, Unit, indices, is_boolean, named
from fusionkit.identify.source.values import PASSED, Value, behind, find, peel, sides

# Behind these the tensor is another one than the scores: a product, what a submodule gives, a selection or a mean.
_SCORES_END = (
    "matmul",
    "einsum",
    "call",
    "module",
    "param",
    "topk",
    "mean",
    "gather",
    "sort",
    "index_select",
)

_FILLS = ("masked_fill", "where")


def find_masked_softmaxes(unit: Unit) -> Iterator[Found]:
    """A softmax over scores that a mask was laid on before."""
    if not unit.runs:
        return
    for softmax in unit.of("softmax"):
        if softmax.args and _is_masked(softmax.args[0]):
            yield Found("npu_scaled_masked_softmax", softmax, mask_hazards(softmax.args[0]))


def mask_hazards(scores: Value) -> frozenset[str]:
    """How masks are laid on `scores`, as far back as casts, scales and sums go."""
    found = set()
    for step in trail(scores):
        if _adds_mask(step):
            found.add("mask_additive")
        elif step.op in _FILLS and _keeps(step):
            found.add("mask_bool_keep")
    return frozenset(found)


def trail(scores: Value, depth: int = 14) -> Iterator[Value]:
    """The ops that `scores` came through, latest first, down to the product of query and key."""
    return behind(scores, depth, lambda item: item.op not in _SCORES_END)


def _is_masked(scores: Value) -> bool:
    return any(step.op in _FILLS or _adds_mask(step) for step in trail(scores))


def _adds_mask(step: Value) -> bool:
    return step.op == "add" and any(_is_mask(arg) for arg in step.args)


def _is_mask(value: Value) -> bool:
    inner = peel(value)
    if any("mask" in named(side) for side in sides(inner)):
        return True
    base = find(inner, lambda item: "mask" in named(item), 4)
    return base is not None and inner.op in ("getitem", "part", "mul", "either", *PASSED)


def _keeps(step: Value) -> bool:
    """Whether True in the mask means keep: where(mask, scores, low), masked_fill(~mask, low) or (mask == 0)."""
    if step.op == "where" and len(step.args) == 3:
        if step.name == "method":
            return True
        low = peel(step.args[2])
        return low.op in ("param", "attr") or find(low, _is_low, 4) is not None
    if len(step.args) < 2:
        return False
    for side in sides(peel(step.args[1])):
        side = peel(side)
        if side.op in ("invert", "not", "logical_not"):
            return True
        if side.op == "compare" and any(arg.number() == 0 for arg in side.args):
            return True
        if side.op == "eq" and side.args[-1].number() == 0:
            return True
    return False


def _is_low(value: Value) -> bool:
    return value.op in ("const", "finfo") or value.name in ("min", "inf")


def find_wheres(unit: Unit) -> Iterator[Found]:
    """Every choice between two tensors by a condition."""
    if not unit.runs:
        return
    hazards = frozenset({"dynamic_shape"}) if unit.depends_on_data else frozenset()
    for value in unit.of("where"):
        if len(value.args) + len(value.kwargs or {}) == 3:
            yield Found("affinity_where", value, hazards)


def find_mask_assignments(unit: Unit) -> Iterator[Found]:
    """Every assignment at a boolean mask whose value does not depend on it."""
    if not unit.runs:
        return
    for value in unit.of("setitem"):
        base, index, assigned = value.args
        if _is_numpy(base):
            continue
        if any(is_boolean(item) for item in indices(index)) and _is_independent(assigned):
            yield Found("affinity_index_put", value)


def _is_independent(assigned: Value) -> bool:
    inner = peel(assigned)
    if inner.number() is not None or inner.op in ("const", "attr", "param", "zeros", "zeros_like", "full"):
        return True
    return inner.op == "neg" or inner.op == "global"


def _is_numpy(base: Value) -> bool:
    return find(base, lambda item: item.name.startswith(("numpy.", "np.")), 6) is not None
