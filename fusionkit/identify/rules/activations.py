"""Which activation a value or a module is: SiLU or GELU, written out, called, built, or named by the configuration."""

from __future__ import annotations

from collections.abc import Iterator

from fusionkit.identify.rules.unit import Unit
from fusionkit.identify.source.configurations import config_defaults
from fusionkit.identify.source.files import SourceClass
from fusionkit.identify.source.values import Value, find, peel, sides

SILU, GELU = "silu", "gelu"
_CLASSES = {
    "SiLU": SILU, "FP32SiLU": SILU, "Swish": SILU, "SiLUActivation": SILU,
    "GELU": GELU, "NewGELUActivation": GELU, "GELUActivation": GELU, "FastGELUActivation": GELU,
    "QuickGELUActivation": GELU, "PytorchGELUTanh": GELU, "QuickGELU": GELU,
}  # fmt: skip
_QUICK = 1.702  # of x * sigmoid(1.702 * x), the sigmoid form of GELU


def kind_of_name(name: str) -> str | None:
    """SiLU or GELU by the name that a configuration uses, None for another activation."""
    name = name.lower()
    if "gelu" in name or name == "geglu":
        return GELU
    return SILU if name in ("silu", "swish", "swiglu") else None


def activation(unit: Unit, value: Value) -> tuple[str, Value] | None:
    """(kind, what it is applied to) if `value` is SiLU or GELU of something."""
    if value.op in (SILU, GELU) and value.args:
        return value.op, value.args[0]
    if value.op == "mul":
        return _written_out(value)
    if value.op == "module" and value.args:
        return _with(kinds_of(unit, unit.built(value.name)), value.args[0])
    if value.op == "call" and value.args:
        if not value.name and len(value.args) > 1:  # act(x) with act = self.act_fn
            target = value.args[0]
            held = (
                unit.built(target.name) if target.op == "attr" and target.args[0].name == "self" else target
            )
            return _with(kinds_of(unit, held), value.args[1])
        return _with(_kind_of_callee(value.name), value.args[0])
    if value.op == "call_method" and len(value.args) == 2:
        return _with(kind_of_name(value.name), value.args[1])
    return None


def _with(kind: str | None, applied: Value) -> tuple[str, Value] | None:
    return None if kind is None else (kind, applied)


def _kind_of_callee(name: str) -> str | None:
    last = name.rpartition(".")[2]
    return _CLASSES.get(last) or (
        kind_of_name(last) if last in ("silu", "swish", "gelu", "quick_gelu", "gelu_new") else None
    )


def kinds_of(unit: Unit, built: Value | None) -> str | None:
    """The kind of a module that `__init__` builds; where branches differ, the first that is one."""
    for side in sides(built) if built is not None else ():
        for kind in _kinds_of_side(unit, side):
            return kind
    return None


def _kinds_of_side(unit: Unit, side: Value) -> Iterator[str]:
    if side.op == "call":
        kind = _kind_of_callee(side.name)
        if kind:
            yield kind
        for arg in side.args[:1]:  # get_activation(config.hidden_act)
            if any(word in side.name.lower() for word in ("act", "fn")):
                yield from _kinds_of_key(unit, arg)
    elif side.op == "getitem" and "ACT2" in side.args[0].name:
        yield from _kinds_of_key(unit, side.args[1])
    elif side.op in (SILU, GELU):
        yield side.op
    elif side.op == "global":
        kind = _kind_of_callee(side.name)
        if kind:
            yield kind
    elif side.op == "attr":
        yield from _kinds_of_key(unit, side)


def _kinds_of_key(unit: Unit, key: Value) -> Iterator[str]:
    for side in sides(key):
        if side.op == "const":
            name = getattr(side.node, "value", "")
            told = [name] if isinstance(name, str) else []
        elif side.op == "attr" and unit.cls is not None:
            held = unit.built(side.name) if side.args[0].name == "self" else None
            if held is not None and held is not key:
                yield from _kinds_of_key(unit, held)
                continue
            told = config_defaults(unit.cls, side.name)
        elif side.op == "call_method" and side.name == "get" and len(side.args) > 2:
            yield from _kinds_of_key(unit, side.args[2])
            continue
        elif side.op == "param" and unit.cls is not None:
            told = _default_of(unit, side.name)
            for builder, given in builders(unit.cls, side.name):
                yield from _kinds_of_key(builder, given)
        else:
            told = []
        for name in told:
            kind = kind_of_name(name)
            if kind:
                yield kind


def builders(cls: SourceClass, parameter: str) -> Iterator[tuple[Unit, Value]]:
    """What the file's other classes hand over as `parameter` where they build `cls`."""
    start = cls.methods.get("__init__")
    names = [] if start is None else [item.arg for item in start.args.args[1:]]
    for other in cls.file.classes.values():
        if other is cls or "__init__" not in other.methods or parameter not in names:
            continue
        for value in cls.file.flow(other.methods["__init__"]).values:
            if value.op == "call" and value.name == cls.name:
                given = value.arg(names.index(parameter), parameter)
                if given is not None:
                    yield Unit(cls.file, other.methods["__init__"], other), given


def _default_of(unit: Unit, parameter: str) -> list[str]:
    """The default of a parameter of `__init__`."""
    start = None if unit.cls is None else unit.cls.methods.get("__init__")
    if start is None:
        return []
    named = start.args.args[len(start.args.args) - len(start.args.defaults) :]
    for item, default in zip(named, start.args.defaults, strict=True):
        value = getattr(default, "value", None)
        if item.arg == parameter and isinstance(value, str):
            return [value]
    return []


def _written_out(product: Value) -> tuple[str, Value] | None:
    """x * sigmoid(x), x * sigmoid(1.702 x), 0.5 * x * (1 + erf(...)) and its tanh form."""
    for one, other in (product.args, product.args[::-1]):
        other = peel(other)
        if other.op == "sigmoid" and other.args:
            inside = peel(other.args[0])
            if inside is peel(one):
                return SILU, one
            if inside.op == "mul" and any(peel(arg) is peel(one) for arg in inside.args):
                number = next((arg.number() for arg in inside.args if arg.number() is not None), None)
                return (GELU if number is not None and abs(number - _QUICK) < 0.01 else SILU), one
        if other.op == "add" and any(arg.number() == 1 for arg in other.args):
            curve = find(other, lambda item: item.op in ("erf", "tanh") or item.name.endswith(".erf"), 3)
            if curve is not None and curve.args:
                base = find(one, lambda item: item.op not in ("mul", "const", *_FORM_OPS), 4)
                if base is not None and _holds(curve.args[0], base):
                    return GELU, base
    return None


def _holds(value: Value, wanted: Value) -> bool:
    return find(value, lambda item: item is wanted, 8) is not None


_FORM_OPS = ("to", "float", "type_as")


def sigmoid_scaled(value: Value) -> bool:
    """Whether a gate is x * sigmoid(alpha * x), with a factor inside the sigmoid."""
    if value.op != "mul":
        return False
    sigmoid = next((peel(arg) for arg in value.args if peel(arg).op == "sigmoid"), None)
    return sigmoid is not None and bool(sigmoid.args) and peel(sigmoid.args[0]).op == "mul"
