"""npu_rms_norm in place of a norm that is written out: x * rsqrt(mean(x**2) + eps), and its weight where there is one."""

from __future__ import annotations

import ast

from fusionkit.identify.replacing.dtypes import FLOAT32, MIXED, dtype_of, key
from fusionkit.identify.replacing.library_norms import called_norm
from fusionkit.identify.replacing.norm_core import Norm, core_of, weighted
from fusionkit.identify.replacing.operands import Operand, Start
from fusionkit.identify.replacing.place import Place, call
from fusionkit.identify.replacing.replacement import Change, Unfit
from fusionkit.identify.replacing.statements import Statements
from fusionkit.identify.rules.rms_norm import find_rms_norms
from fusionkit.identify.rules.unit import Unit
from fusionkit.identify.source.evaluate import FunctionNode
from fusionkit.identify.source.values import CASTS, Value, find, peel

_OP = "torch_npu.npu_rms_norm"
_ROUNDED = (
    "the op rounds once, the original before the weight too: one rounding step of half precision may differ"
)


def replace_rms_norm(place: Place) -> list[Change]:
    """The change for one norm. Raises Unfit where it is not one over the last dimension."""
    if place.value.op == "rms_norm":
        return [called_norm(place)]
    x, eps = core_of(place.value)
    return _changes(place, Norm(x, eps, place.value, None))


def calls_of_helper(unit: Unit, statements: Statements, helper: FunctionNode) -> list[Change]:
    """The change in `forward` for a norm that a method of the class computes: self._norm(x), then the weight."""
    inner = [found.value for found in find_rms_norms(Unit(unit.file, helper, unit.cls))]
    calls = [value for value in unit.of("module") if value.name == helper.name and len(value.args) == 1]
    if len(inner) != 1 or len(calls) != 1:
        return []
    x, eps = core_of(inner[0])
    own = unit.file.flow(helper)
    returned = [peel(value, CASTS) for value in own.returns]
    if x.op != "param" or returned != [inner[0]] or (eps is not None and eps.op not in ("attr", "const")):
        return []
    place = Place(unit, statements, calls[0], frozenset())
    try:
        change = _changes(place, Norm(peel(calls[0].args[0], CASTS), eps, calls[0], None))
    except Unfit:
        return []
    return change


def _changes(place: Place, plain: Norm) -> list[Change]:
    norm = weighted(place, plain)
    try:
        return [_change(place, norm)]
    except Unfit:
        if norm.weight is None:
            raise
        return [_change(place, plain)]


def _change(place: Place, norm: Norm) -> Change:
    parts = _parts(norm)
    start = place.start(parts)
    x = start.operand(norm.x)
    eps = Operand("0.0", frozenset()) if norm.eps is None else _eps(start, norm.eps)
    weight = None if norm.weight is None else start.operand(norm.weight)
    text, conditions, notes = _text(place, start, norm, x, weight, eps.text)
    names = x.names | eps.names | (weight.names if weight else frozenset())
    if norm.last.op == "either":
        raise Unfit("the norm ends in a branch")
    return Change(
        place.put(norm.last.node, text), tuple(parts), at_start=names, conditions=conditions, notes=notes
    )


def _eps(start: Start, eps: Value) -> Operand:
    """eps, which may stand in another method of the class as a constant or an attribute of self."""
    if eps.op == "attr" and eps.args[0].name == "self":
        return Operand(f"self.{eps.name}", frozenset({"self"}))
    return start.operand(eps)


def _text(
    place: Place, start: Start, norm: Norm, x: Operand, weight: Operand | None, eps: str
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """(the call, its conditions, notes), such that the dtype of the result is the original's."""
    known: dict[object, str] = {key(norm.x): "x"}
    base = None if norm.weight is None else find(norm.weight, lambda item: item.op in ("attr", "param"), 5)
    if base is not None:
        known[key(base)] = "weight"
    dtype = _dtype(norm, known)
    given, conditions, cast = x.text, [], ""
    notes = []
    if norm.optional and base is not None:
        conditions.append(f"{start.operand(base).text} is not None")
    gamma = weight.text if weight is not None else ""
    if dtype == MIXED and base is not None:
        conditions.append(f"{start.operand(base).text}.dtype == {x.text}.dtype")
        notes.append(_ROUNDED)
        notes.append("where weight and input differ in dtype the original runs: its result is promoted")
    else:
        gamma = f"{gamma}.float()" if gamma and not gamma.endswith(".float())") else gamma
        if dtype == FLOAT32:
            given = f"{x.text}.float()"
        elif dtype == "weight" and base is not None:
            cast = f".to({start.operand(base).text}.dtype)"
            notes.append(_ROUNDED)
        elif isinstance(dtype, Value):
            cast = f".to({start.operand(dtype).text})"
        elif dtype != "x":
            raise Unfit("the dtype of the norm's result cannot be told from the code")
    if not gamma:
        gamma = f"{place.in_function('ones')}({x.text}.shape[-1], dtype={place.in_function('float32')}, device={x.text}.device)"
    if "non_contiguous" in place.hazards:
        given = f"{given}.contiguous()"
    return call(_OP, given, gamma, f"epsilon={eps}") + f"[0]{cast}", tuple(conditions), tuple(notes)


def _dtype(norm: Norm, known: dict[object, str]) -> str | Value | None:
    dtype = dtype_of(norm.last, known)
    if dtype is None and _follows_weight(norm, known):
        return "weight"
    return dtype


def _follows_weight(norm: Norm, known: dict[object, str]) -> bool:
    """T5: a cast to the weight's dtype where that is half precision, then the product with it."""
    cast = find(norm.last, lambda item: item.op in CASTS and dtype_of(item, known) == "weight", 6)
    return norm.weight is not None and cast is not None


def _parts(norm: Norm) -> list[ast.AST]:
    """Nodes of everything between x and the end."""
    found: list[ast.AST] = []
    front, seen = [norm.last], {id(norm.x)}
    while front:
        item = front.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if find(item, lambda inner: inner is norm.x, 12) is None or item.op in ("param", "const", "global"):
            continue
        if isinstance(item.node, ast.expr):
            found.append(item.node)
        front += [*item.args, *(item.kwargs or {}).values()]
    return found
