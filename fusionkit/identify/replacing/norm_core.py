"""What a norm that is written out is made of: x, eps, its weight, and where it ends."""

from __future__ import annotations

from dataclasses import dataclass

from fusionkit.identify.replacing.place import Place
from fusionkit.identify.replacing.replacement import Unfit
from fusionkit.identify.replacing.statements import Statements
from fusionkit.identify.rules.rms_norm import find_rms_norms
from fusionkit.identify.rules.unit import Unit
from fusionkit.identify.source.files import SourceClass
from fusionkit.identify.source.values import CASTS, Value, find, peel

_WEIGHTS = ("weight", "gamma", "scale", "gain")


@dataclass(frozen=True, slots=True)
class Norm:
    """x, eps (None where none is added), and the last value of the norm, with the weight that it took on."""

    x: Value
    eps: Value | None
    last: Value
    weight: Value | None
    optional: bool = False


def core_of(product: Value) -> tuple[Value, Value | None]:
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


def weighted(place: Place, norm: Norm) -> Norm:
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
    return Norm(norm.x, norm.eps, last, weight, optional)


def _holds(value: Value, weight: Value) -> bool:
    return find(value, lambda item: item is weight, 6) is not None


def _weight(product: Value, reached: list[Value]) -> Value | None:
    """The factor beside the norm, if it is a weight."""
    if len(product.args) != 2:
        return None
    other = product.args[1] if product.args[0] in reached else product.args[0]
    named = find(other, lambda item: item.op in ("attr", "param") and is_called_weight(item), 5)
    within = find(other, lambda item: item in reached or item.op in ("matmul", "module", "linear"), 6)
    if named is None or within is not None or peel(other).op in ("either", "getitem", "unsqueeze"):
        return None
    return other if peel(other, CASTS).op in ("attr", "param", "add") else None


def is_called_weight(value: Value) -> bool:
    """Whether a value bears a name that norms give their weight."""
    return any(word in value.name for word in _WEIGHTS) or value.name in ("g", "w")


def weight_and_eps(cls: SourceClass) -> tuple[str, str] | None:
    """(weight, eps) of a class that is a norm in one method, as source; None for any other class."""
    forward = cls.methods.get("forward")
    for helper in cls.methods.values():
        unit = Unit(cls.file, helper, cls)
        values = [found.value for found in find_rms_norms(unit)] if helper.name != "__init__" else []
        if len(values) != 1 or forward is None:
            continue
        outer = Unit(cls.file, forward, cls)
        calls = [item for item in outer.of("module") if item.name == helper.name]
        ends = values if helper is forward else calls
        try:
            _, eps = core_of(values[0])
        except Unfit:
            return None
        place = Place(outer, Statements(forward, cls.file.text), ends[0], frozenset()) if ends else None
        norm = None if place is None else weighted(place, Norm(ends[0], eps, ends[0], None))
        if norm is None or norm.weight is None or eps is None or eps.op not in ("attr", "const"):
            return None
        if peel(norm.weight, CASTS).op == "add":
            return None
        base = find(norm.weight, lambda item: item.op == "attr" and is_called_weight(item), 5)
        return (
            None
            if base is None
            else (f"self.{base.name}", f"self.{eps.name}" if eps.op == "attr" else eps.name)
        )
    return None
