"""The dtype of a result, told by the operands that it follows."""

from __future__ import annotations

from collections.abc import Mapping

from fusionkit.identify.source.values import FORMS, Value

FLOAT32 = "float32"
MIXED = "mixed"  # of two operands, by promotion
_SAME = frozenset(
    {"rsqrt", "sqrt", "mean", "pow", "square", "neg", "silu", "gelu", "part", "getitem", "reciprocal", *FORMS}
)
_JOINT = ("mul", "add", "sub", "div")


def key(value: Value) -> object:
    """What a value is known by: its name where it is an attribute of self, which each mention makes anew."""
    if value.op == "attr" and value.args[0].name == "self":
        return f"self.{value.name}"
    return id(value)


def dtype_of(value: Value, known: Mapping[object, str]) -> str | Value | None:
    """The dtype of a value: a name of `known` (key of value -> name), FLOAT32, MIXED, or the Value that gives it.

    None where it cannot be told.
    """
    if key(value) in known:
        return known[key(value)]
    if value.op == "float":
        return FLOAT32
    if value.op == "type_as" and len(value.args) > 1:
        return dtype_of(value.args[1], known)
    if value.op == "to":
        given = value.arg(1, "dtype") or next(iter((value.kwargs or {}).values()), None)
        return None if given is None else _named(given, known)
    if value.op in _SAME and value.args:
        return dtype_of(value.args[0], known)
    if value.op in _JOINT:
        return _joint([dtype_of(arg, known) for arg in value.args if not _is_scalar(arg, known)])
    if value.op == "either":
        told = {dtype_of(arg, known) for arg in value.args}
        return next(iter(told)) if len(told) == 1 else None
    return None


def _named(given: Value, known: Mapping[object, str]) -> str | Value | None:
    """The dtype that `to` was given."""
    if given.name in ("torch.float32", "torch.float"):
        return FLOAT32
    if given.op == "attr" and given.name == "dtype":
        return dtype_of(given.args[0], known) or given
    if given.op == "attr" and given.args and given.args[0].op == "global":
        return given
    return dtype_of(given, known) or given


def _is_scalar(value: Value, known: Mapping[object, str]) -> bool:
    if key(value) in known:
        return False
    return value.number() is not None or value.op in ("const", "global") or (
        value.op in ("attr", "param") and any(word in value.name for word in ("eps", "scale", "scaling", "alpha"))
    )  # fmt: skip


def _joint(told: list[str | Value | None]) -> str | Value | None:
    distinct = list(dict.fromkeys(told))
    if len(distinct) == 1:
        return distinct[0]
    if FLOAT32 in distinct and all(isinstance(item, str) for item in distinct):
        return FLOAT32
    if distinct and all(isinstance(item, str) for item in distinct):
        return MIXED
    return None
