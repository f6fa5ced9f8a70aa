"""Root mean square norms, in any spelling: x / sqrt(mean(x**2) + eps), with or without a weight."""

from __future__ import annotations

from collections.abc import Iterator

from fusionkit.identify.rules.unit import Found, Unit
from fusionkit.identify.source.values import CASTS, FORMS, PASSED, Value, factors, find, peel, sides

OP = "npu_rms_norm"
_OUTSIDE = frozenset({"clamp", "max", "maximum"})


def find_rms_norms(unit: Unit) -> Iterator[Found]:
    """Every root mean square norm of a function, and torch's own where the class builds or calls one."""
    if unit.builds:
        yield from _built(unit)
        return
    for value in unit.of("rms_norm"):
        yield Found(OP, value, _library_hazards(value.arg(2, "weight"), value.arg(3, "eps")))
    for value in unit.flow.values:
        squared = _root_of_mean_square(value)
        if squared is None:
            continue
        products = [user for user in _products(unit, value) if _multiplies(user, squared[0])]
        if products:
            yield Found(OP, products[0], _hazards(unit, products, squared[1]))


def _built(unit: Unit) -> Iterator[Found]:
    for value in unit.of("call"):
        if value.name == "torch.nn.RMSNorm":
            affine = value.arg(2, "elementwise_affine")
            hazards = _library_hazards(None, value.arg(1, "eps")) - {"weight_none"}
            if affine is not None and affine.name != "True":
                hazards |= {"weight_none"}
            yield Found(OP, value, hazards)


def _library_hazards(weight: Value | None, eps: Value | None) -> frozenset[str]:
    found = set()
    if weight is None or weight.name == "None":
        found.add("weight_none")
    if eps is None or eps.name == "None":
        found.add("eps_inside_or_outside")  # torch takes the dtype's own epsilon
    return frozenset(found)


def _root_of_mean_square(value: Value) -> tuple[Value, bool] | None:
    """(x, whether eps is added to the mean) if `value` is the root of x's mean square, or its inverse."""
    if value.op in ("rsqrt", "sqrt"):
        inner = value.args[0] if value.args else None
    elif value.op == "pow" and len(value.args) > 1 and abs(value.args[1].number() or 0) == 0.5:
        inner = value.args[0]
    elif value.op in ("norm", "vector_norm"):
        return _from_norm(value)
    else:
        return None
    return None if inner is None else _mean_square(inner)


def _mean_square(inner: Value) -> tuple[Value, bool] | None:
    inner = peel(inner)
    if inner.op == "add":
        for mean, other in (inner.args, inner.args[::-1]):
            found = _mean_square(mean)
            if found is not None and _mean_square(other) is None:
                return found[0], True
        return None
    if inner.op in _OUTSIDE and inner.args:
        return _mean_square(inner.args[0])
    if inner.op == "div" and peel(inner.args[0]).op == "sum":
        inner = peel(inner.args[0])
    elif inner.op != "mean":
        return None
    for side in sides(peel(inner.args[0])) if inner.args else ():
        squared = _square(side)
        if squared is not None:
            return None if _is_centred(squared) else (squared, False)
    return None


def _square(value: Value) -> Value | None:
    if value.op == "square" and value.args:
        return peel(value.args[0])
    if value.op == "pow" and len(value.args) > 1 and value.args[1].number() == 2:
        return peel(value.args[0])
    if value.op == "mul" and peel(value.args[0]) is peel(value.args[1]):
        return peel(value.args[0])
    return None


def _is_centred(value: Value) -> bool:
    """Whether a mean was subtracted: that is a layer norm's variance."""
    return value.op == "sub" and find(value.args[1], lambda item: item.op == "mean", 3) is not None


def _from_norm(value: Value) -> tuple[Value, bool] | None:
    """x.norm(dim=-1): a mean square once it is multiplied by d ** -0.5, which _products checks."""
    return (peel(value.args[0]), False) if value.args else None


def _products(unit: Unit, root: Value) -> Iterator[Value]:
    """Products and quotients that the root goes into, casts, changes of form and an added eps passed over."""
    front, scaled = [root], root.op not in ("norm", "vector_norm")
    for _ in range(6):
        following: list[Value] = []
        for item in front:
            for user in unit.users(item):
                if user.op in ("mul", "div"):
                    if not scaled and _is_root_of_size(user, item):
                        scaled = True
                        following.append(user)
                    elif scaled and user.args[0] is not user.args[-1]:
                        yield user
                        if peel(user.args[0]).number() == 1:  # 1 / sqrt(...)
                            following.append(user)
                elif user.op in PASSED or user.op in ("add", "reciprocal", "either", *_OUTSIDE):
                    following.append(user)
        front = following


def _is_root_of_size(product: Value, norm: Value) -> bool:
    """Whether a factor beside the norm is a root of the size: d ** -0.5, 1 / sqrt(d), self.scale."""
    other = next((arg for arg in product.args if arg is not norm), None)
    return other is not None and (
        find(other, lambda v: v.op in ("pow", "sqrt", "rsqrt"), 4) is not None
        or (other.op == "call" and other.name.endswith("sqrt"))
    )


def _multiplies(product: Value, squared: Value) -> bool:
    """Whether the other factor is what was squared, casts and further factors aside."""
    return any(_reaches(arg, squared) and not _holds_root(arg) for arg in product.args)


def _reaches(value: Value, wanted: Value, depth: int = 6) -> bool:
    if value is wanted:
        return True
    if not depth or not (value.op in PASSED or value.op in ("mul", "either", "getitem")):
        return False
    return any(_reaches(arg, wanted, depth - 1) for arg in value.args)


def _holds_root(value: Value) -> bool:
    return peel(value).op in (
        "rsqrt",
        "sqrt",
        "pow",
        "norm",
        "vector_norm",
        "mean",
        "add",
        "div",
        "reciprocal",
    ) or (peel(value).op in _OUTSIDE)


def _hazards(unit: Unit, products: list[Value], eps_inside: bool) -> frozenset[str]:
    found = set() if eps_inside else {"eps_inside_or_outside"}
    weighted = _weighted(unit, products)
    if (
        not weighted
        and unit.cls is not None
        and "forward" in unit.cls.methods
        and unit.node.name != "forward"
    ):
        outer = Unit(unit.file, unit.cls.methods["forward"], unit.cls)
        calls = [item for item in outer.of("module") if item.name == unit.node.name]
        weighted = _weighted(outer, calls)
    if not weighted:
        found.add("weight_none")
    for weight, was_cast in weighted:
        found |= _weight_hazards(unit, weight)
        if was_cast:
            found.add("dtype_order")
    if unit.dispatched:
        found.add("dispatch_elsewhere")
    return frozenset(found)


def _weighted(unit: Unit, normalised: list[Value]) -> list[tuple[Value, bool]]:
    """(weight, whether a cast lies between the norm and it) for each product with a weight."""
    found = []
    front = [(item, False) for item in normalised]
    seen = {(id(item), False) for item in normalised}
    for item in normalised:  # weight * x * rsqrt: the weight may stand in the first product already
        for factor in factors(item.args[0] if item.op == "div" else item, FORMS):
            found += [(weight, False) for weight in sides(factor) if _is_weight(weight)]
    for _ in range(8):
        following = []
        for item, was_cast in front:
            for user in unit.users(item):
                if (id(user), was_cast) in seen:
                    continue
                seen.add((id(user), was_cast))
                if user.op == "mul":
                    other = user.args[1] if user.args[0] is item else user.args[0]
                    weights = [side for side in sides(other) if _is_weight(side)]
                    found += [(weight, was_cast) for weight in weights]
                    following.append((user, was_cast))
                elif user.op in CASTS:
                    following.append((user, was_cast or not _to_float32(user)))
                elif user.op in FORMS or user.op == "either":
                    following.append((user, was_cast))
        front = following
    return found


def _to_float32(cast: Value) -> bool:
    return cast.op == "float" or any(arg.name.endswith("float32") for arg in cast.args[1:])


def _is_weight(value: Value) -> bool:
    value = peel(value)
    if value.op == "add":
        return any(_is_weight(arg) for arg in value.args) and any(arg.number() == 1 for arg in value.args)
    names = ("weight", "gamma", "scale", "gain")
    return value.op in ("attr", "param", "getitem") and (
        any(word in value.name for word in names)
        or (value.op == "attr" and value.args[0].name == "self" and value.name in ("g", "w"))
    )


def _weight_hazards(unit: Unit, weight: Value) -> frozenset[str]:
    found = set()
    inner = weight
    while inner.op in PASSED or inner.op == "add":
        if inner.op in CASTS and _to_float32(inner):
            found.add("fp32_weight_bf16_input")
        if inner.op == "add":
            found.add("one_plus_weight")
            inner = next(arg for arg in inner.args if _is_weight(arg))
        else:
            inner = inner.args[0]
    built = unit.built(inner.name) if inner.op == "attr" else None
    if built is not None and any(side.name == "None" for side in sides(built)):
        found.add("weight_none")
    return frozenset(found)
