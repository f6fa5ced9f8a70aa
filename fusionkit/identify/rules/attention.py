"""Attention: written out (scores, softmax, values), or through scaled_dot_product_attention and diffusers' dispatch."""

from __future__ import annotations

from collections.abc import Iterator

from fusionkit.identify.rules.attention_hazards import eager_hazards, library_hazards
from fusionkit.identify.rules.unit import Found, Unit, named
from fusionkit.identify.source.values import PASSED, Value, behind, peel

OP = "npu_fusion_attention"
_PRODUCTS = ("matmul", "einsum", "baddbmm", "addmm")
_NORMALISATIONS = ("softmax", "sigmoid", "relu", "tanh")
_SOFTMAX_NAMES = ("softmax", "gumbel")
_BETWEEN = PASSED | {
    "dropout", "mul", "div", "module", "either", "masked_fill", "where", "getitem", "part", "call", "add", "sub", "matmul",
    "setitem", "clamp", "repeat", "tuple", "cat", "repeat_interleave",
}  # fmt: skip


def find_attention(unit: Unit) -> Iterator[Found]:
    """Every attention of a function."""
    if not unit.runs:
        return
    for value in unit.flow.values:
        if value.op == "scaled_dot_product_attention":
            yield Found(OP, value, library_hazards(unit, value))
        elif value.op == "call" and value.name.endswith("dispatch_attention_fn"):
            yield Found(OP, value, library_hazards(unit, value) | {"dispatch_elsewhere"})
        elif value.op in _PRODUCTS:
            found = _written_out(unit, value)
            if found is not None:
                yield Found(OP, value, eager_hazards(unit, *found))


def _written_out(unit: Unit, values: Value) -> tuple[Value, Value] | None:
    """(normalised scores, scores) if `values` multiplies probabilities with something."""
    for operand in values.args:
        through = behind(operand, 9, lambda item: item.op in _BETWEEN)
        normal = next((item for item in through if _is_normalisation(unit, item)), None)
        if normal is None:
            continue
        scores = _scores_behind(unit, normal)
        if scores is not None and scores is not values and not _is_weighting(values, normal):
            return normal, scores
    return None


def _scores_behind(unit: Unit, normal: Value) -> Value | None:
    """The product of query and key that was normalised; submodules are not looked behind, own methods are."""

    def enters(item: Value) -> bool:
        own = item.op == "module" and unit.cls is not None and item.name in unit.cls.methods
        return own or item.op not in ("module", "linear", "call_method", "param", "attr")

    return next((item for item in behind(normal.args[0], 16, enters) if item.op in _PRODUCTS), None)


def _is_weighting(values: Value, normal: Value) -> bool:
    """Whether what is multiplied with are mere weights of the heads, as in an indexer's relu(q @ k) @ weights."""
    return normal.op == "relu" and any("weight" in named(peel(arg)) for arg in values.args)


def _is_normalisation(unit: Unit, value: Value) -> bool:
    if value.op in _NORMALISATIONS:
        return True
    if value.op == "module" and unit.cls is not None and value.args and value.name in unit.cls.methods:
        own = unit.file.flow(unit.cls.methods[value.name])
        return any(item.op == "softmax" for item in own.values)
    last = value.name.rpartition(".")[2].lower()
    return (
        value.op in ("call", "module") and bool(value.args) and any(word in last for word in _SOFTMAX_NAMES)
    )
