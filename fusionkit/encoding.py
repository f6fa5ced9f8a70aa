"""Results in JSON types, and back: one cattrs converter.

cattrs rather than msgspec, which encodes fields only: here properties are encoded too, each class names its own keys,
and results stay ordinary dataclasses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

from cattrs import BaseValidationError, Converter, transform_error
from cattrs.v import format_exception

from fusionkit.errors import MisuseError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shape:
    """How a class is encoded: its `schema`, if any, its fields `without` some, its properties `also`, other `keys`."""

    schema: str | int | None = None
    also: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)


class Result:
    """Base of the dataclasses that are written as JSON; the class keywords are the fields of `Shape`."""

    __slots__ = ()
    shape_of_json: ClassVar[Shape] = Shape()

    def __init_subclass__(cls, **keywords: Any) -> None:
        if keywords:  # dataclass(slots=True) makes the class a second time, without keywords
            cls.shape_of_json = Shape(**keywords)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; a number that is not finite becomes None."""
        return _encode(self)


def plain(value: Any) -> Any:
    """`value` in JSON types: dataclasses as dicts, tuples as lists, enums and paths as text."""
    return _CONVERTER.unstructure(value)


def decode(kind: type[T], value: Any, where: str) -> T:
    """A `kind` from JSON `value`. Raises MisuseError naming `where` and each field that is missing or wrong."""
    if is_dataclass(kind) and not isinstance(value, Mapping):
        raise MisuseError(f"{where}: a JSON object is expected, not {type(value).__name__}")
    try:
        return _CONVERTER.structure(value, kind)
    except BaseValidationError as error:
        faults = transform_error(error, path="$", format_exception=_fault)
        raise MisuseError(f"{where}: {'; '.join(faults)}") from error


def _encode(value: Any) -> dict[str, Any]:
    shape = getattr(value, "shape_of_json", Shape())
    names = [item.name for item in fields(value) if item.name not in shape.without]
    encoded = {} if shape.schema is None else {"schema": shape.schema}
    return encoded | {
        shape.keys.get(name, name): plain(getattr(value, name)) for name in (*names, *shape.also)
    }


def _fault(error: BaseException, kind: type | None) -> str:
    return str(error) if isinstance(error, TypeError) else format_exception(error, kind)


def _exactly(value: Any, kind: type) -> Any:
    """`value` itself; cattrs would make a text of a number."""
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise TypeError(f"{kind.__name__} is expected, not {type(value).__name__}")
    return value


def _tuple(value: Any, kind: Any) -> tuple[Any, ...]:
    """A list as a tuple; cattrs would make one of a text's letters and of an object's keys too."""
    _exactly(value, list)
    items: Any = list[get_args(kind)[0]]  # type: ignore[misc]
    return tuple(_CONVERTER.structure(value, items))


_CONVERTER = Converter()
for _kind in (str, int, float, bool):
    _CONVERTER.register_structure_hook(_kind, _exactly)
_CONVERTER.register_structure_hook(StrEnum, lambda value, kind: kind(value))
_CONVERTER.register_structure_hook_func(
    lambda kind: getattr(kind, "__origin__", None) is tuple and get_args(kind)[1:] == (...,), _tuple
)
_CONVERTER.register_unstructure_hook_func(is_dataclass, _encode)
_CONVERTER.register_unstructure_hook_func(
    lambda kind: hasattr(kind, "to_dict"), lambda value: value.to_dict()
)
_CONVERTER.register_unstructure_hook(StrEnum, lambda value: value.value)
_CONVERTER.register_unstructure_hook(Path, str)
_CONVERTER.register_unstructure_hook(tuple, lambda values: [plain(value) for value in values])
_CONVERTER.register_unstructure_hook(
    Mapping, lambda values: {key: plain(item) for key, item in values.items()}
)
_CONVERTER.register_unstructure_hook(float, lambda value: value if math.isfinite(value) else None)
