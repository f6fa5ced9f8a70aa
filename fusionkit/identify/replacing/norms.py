"""npu_rms_norm in place of a norm that is written out: x * rsqrt(mean(x**2) + eps), and its weight where there is one."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from fusionkit.identify.replacing.dtypes import FLOAT32, MIXED, dtype_of, key
from fusionkit.identify.replacing.library_norms import called_norm
from fusionkit.identify.replacing.operands import Operand, Start
from fusionkit.identify.replacing.place import Place, call
from fusionkit.identify.replacing.replacement import Change, Unfit
from fusionkit.identify.replacing.statements import Statements
from fusionkit.identify.rules.rms_norm import find_rms_norms
from fusionkit.identify.rules.unit import Unit
from fusionkit.identify.source.evaluate import FunctionNode
from fusionkit.identify.source.values import CASTS, Value, find, peel

_OP = "torch_npu.npu_rms_norm"
_WEIGHTS = ("weight", "gamma", "scale", "gain")
_ROUNDED = (
    "the op rounds once, the original before the weight too: one rounding step of half precision may differ"
)


@dataclass(frozen=True, slots=True)
class _Norm:
    """x, eps (None where none is added), and the last value of the norm, with the weight that it took on."""

    x: Value
    eps: Value | None
    last: Value
    weight: Value | None
    optional: bool = False


def replace_rms_norm(place: Place) -> list[Change]:
    """The change for one norm. Raises Unfit where it is not one over the last dimension."""
    if place.value.op == "rms_norm":
        return [called_norm(place)]
    x, eps = _core(place.value)
    return _changes(place, _Norm(x, eps, place.value, None))


def calls_of_helper(unit: Unit, statements: Statements, helper: FunctionNode) -> list[Change]:
    """The change in `forward` for a norm that a method of the class computes: self._norm(x), then the weight."""
    inner = [found.value for found in find_rms_norms(Unit(unit.file, helper, unit.cls))]
    calls = [value for value in unit.of("module") if value.name == helper.name and len(value.args) == 1]
    if len(inner) != 1 or len(calls) != 1:
        return []
    x, eps = _core(inner[0])
    own = unit.file.flow(helper)
    returned = [peel(value, CASTS) for value in own.returns]
    if x.op != "param" or returned != [inner[0]] or (eps is not None and eps.op not in ("attr", "const")):
        return []
    place = Place(unit, statements, calls[0], frozenset())
    try:
        change = _changes(place, _Norm(peel(calls[0].args[0], CASTS), eps, calls[0], None))
    except Unfit:
        return []
    return change


def _changes(place: Place, plain: _Norm) -> list[Change]:
    norm = _weighted(place, plain)
    try:
        return [_change(place, norm)]
    except Unfit:
        if norm.weight is None:
            raise
        return [_change(place, plain)]


def _core(product: Value) -> tuple[Value, Value | None]:
    """(x, eps) of x * rsqrt(mean(x**2) + eps)."""
    if product.op not in ("mul", "div") or len(product.args) != 2:
        raise Unfit("the norm does not end in a product")
    one, other = product.args
    pairs = (
        ((one, other, product.op == "div"),)
        if product.op == "div"
        else ((one, other, False), (other, one, False))
    )
    for x, root, divides in pairs:
        inner = _rooted(peel(root), divides)
        if inner is not None:
            mean, eps = _mean_and_eps(inner)
            squared = _squared(mean)
            base = peel(squared, CASTS)
            if peel(x, CASTS) is base or find(x, lambda item, base=base: item is base, 2):  # type: ignore[misc]
                _check_last_dim(mean)
                return base, eps
    raise Unfit("the root of the mean square is not written as rsqrt(mean(x**2) + eps)")


def _rooted(root: Value, divides: bool) -> Value | None:
    """What stands under the root, if `root` is 1 / sqrt (or sqrt, where x is divided by it)."""
    number = root.args[1].number() if root.op == "pow" and len(root.args) > 1 else None
    if divides:
        return root.args[0] if root.op == "sqrt" or number == 0.5 else None
    if root.op == "rsqrt" or number == -0.5:
        return root.args[0]
    if root.op == "div" and root.args[0].number() == 1:
        return _rooted(peel(root.args[1]), True)
    if root.op == "reciprocal":
        return _rooted(peel(root.args[0]), True)
    return None


def _mean_and_eps(inner: Value) -> tuple[Value, Value | None]:
    inner = peel(inner, CASTS)
    if inner.op == "add":
        for mean, eps in (inner.args, inner.args[::-1]):
            if peel(mean).op == "mean":
                return peel(mean), eps
    if inner.op == "mean":
        return inner, None
    raise Unfit("eps is not simply added to the mean square")


def _squared(mean: Value) -> Value:
    value = peel(mean.args[0], CASTS) if mean.args else mean
    if value.op == "square" or (value.op == "pow" and value.args[1].number() == 2):
        return value.args[0]
    if value.op == "mul" and peel(value.args[0]) is peel(value.args[1]):
        return value.args[0]
    raise Unfit("what is averaged is no square")


def _check_last_dim(mean: Value) -> None:
    dim = mean.arg(1, "dim")
    if dim is not None and dim.op == "tuple" and len(dim.args) == 1:
        dim = dim.args[0]
    keeps = mean.arg(2, "keepdim")
    if dim is None or dim.number() != -1 or keeps is None or keeps.name != "True":
        raise Unfit("the mean is not taken over the last dimension")


def _weighted(place: Place, norm: _Norm) -> _Norm:
    """The norm with the casts and the weight that follow it, as far as nothing else reads what lies between."""
    last, weight, reached = norm.last, norm.weight, [norm.last]
    optional = False
    for _ in range(8):
        users = [user for item in reached for user in place.users(item) if user not in reached]
        if not users:
            break
        user = users[0]
        if user.op in CASTS and user.args[0] in reached:
            reached.append(user)
        elif user.op == "mul" and weight is None and (found := _weight(user, reached)) is not None:
            weight = found
            reached.append(user)
        elif user.op == "either" and all(arg in reached for arg in user.args):
            optional = optional or (weight is not None and not all(_holds(arg, weight) for arg in user.args))
            reached.append(user)
        else:
            break
        last = user
    if any(user not in reached for item in reached if item is not last for user in place.users(item)):
        return norm
    return _Norm(norm.x, norm.eps, last, weight, optional)


def _holds(value: Value, weight: Value) -> bool:
    return find(value, lambda item: item is weight, 6) is not None


def _weight(product: Value, reached: list[Value]) -> Value | None:
    """The factor beside the norm, if it is a weight."""
    if len(product.args) != 2:
        return None
    other = product.args[1] if product.args[0] in reached else product.args[0]
    named = find(other, lambda item: item.op in ("attr", "param") and _is_called_weight(item), 5)
    within = find(other, lambda item: item in reached or item.op in ("matmul", "module", "linear"), 6)
    if named is None or within is not None or peel(other).op in ("either", "getitem", "unsqueeze"):
        return None
    return other if peel(other, CASTS).op in ("attr", "param", "add") else None


def _is_called_weight(value: Value) -> bool:
    return any(word in value.name for word in _WEIGHTS) or value.name in ("g", "w")


def _change(place: Place, norm: _Norm) -> Change:
    parts = _parts(place, norm)
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
    place: Place, start: Start, norm: _Norm, x: Operand, weight: Operand | None, eps: str
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


def _dtype(norm: _Norm, known: dict[object, str]) -> str | Value | None:
    dtype = dtype_of(norm.last, known)
    if dtype is None and _follows_weight(norm, known):
        return "weight"
    return dtype


def _follows_weight(norm: _Norm, known: dict[object, str]) -> bool:
    """T5: a cast to the weight's dtype where that is half precision, then the product with it."""
    cast = find(norm.last, lambda item: item.op in CASTS and dtype_of(item, known) == "weight", 6)
    return norm.weight is not None and cast is not None


def _parts(place: Place, norm: _Norm) -> list[ast.AST]:
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
