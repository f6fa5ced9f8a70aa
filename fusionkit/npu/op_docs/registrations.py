"""The schemas of torch_npu's ops: from its libraries, and from its tables of code generation."""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml

from fusionkit.encoding import Result
from fusionkit.npu.op_docs.package import PackageReader

# Libraries that register ops, and the prefix of their names below torch_npu.
LIBRARIES: tuple[tuple[str, str], ...] = (
    ("torch_npu/lib/libtorch_npu.so", ""),
    ("torch_npu/lib/libop_plugin_atb.so", "atb."),
)
# Tables of code generation; the ops of atb have none.
TABLES: tuple[str, ...] = (
    "torch_npu/csrc/aten/npu_native_functions.yaml",
    "torch_npu/csrc/aten/npu_native_functions_by_codegen.yaml",
)

_SCHEMA = re.compile(
    r"(?P<op>\w+)(?:\.(?P<overload>\w+))?\((?P<arguments>[\x20-\x7e]*)\) -> (?P<returns>[\w\[\]()?!, ]+)"
)
_TYPE = r"(?:Tensor|Scalar|ScalarType|int|SymInt|float|bool|str|Device|Layout|MemoryFormat|Generator|__torch__[\w.]+)"
_ARGUMENT = re.compile(rf"\*|{_TYPE}(?:\([a-z]!?\))?(?:\[\d*\])?\??(?:\[\d*\])?\?? \w+(?:=.+)?")
_COMMA = re.compile(r",\s*(?![^\[]*\])")
_FUNC = re.compile(r"(?:- | {2})func: (?P<value>.+)")
_NAME = re.compile(r"(?P<op>\w+)(?:\.(?P<overload>\w+))?\(")
_LONGEST = 16_384


@dataclass(frozen=True, slots=True)
class ApiSchema(Result):
    """One overload of an op: its schema, and the files (text files with line) that contain it."""

    op: str
    overload: str
    text: str
    where: tuple[str, ...]


def read_schemas(package: PackageReader) -> tuple[ApiSchema, ...]:
    """The schemas of torch_npu's own ops, the default overload first.

    The text is that registered with the dispatcher. An op that only a table of code generation lists has the table's
    text, which calls the first argument `self` instead of the registered `input`.
    """
    schemas: dict[tuple[str, str], ApiSchema] = {}
    for file, prefix in LIBRARIES:
        for op, overload, text in _registered(package.read(file) or b""):
            schemas[prefix + op, overload] = ApiSchema(prefix + op, overload, text, (file,))
    for file in TABLES:
        for line, text in _listed((package.read(file) or b"").decode("utf-8", "replace")):
            name = _NAME.match(text)
            if name is None:
                continue
            key = (name["op"], name["overload"] or "")
            listed = schemas.get(key)
            before = (listed.text, listed.where) if listed else (text, ())
            schemas[key] = ApiSchema(*key, before[0], (*before[1], f"{file}:{line}"))
    return tuple(schemas[key] for key in sorted(schemas))


def _registered(library: bytes) -> list[tuple[str, str, str]]:
    """(op, overload, schema) of every string in a library that has the form of a schema."""
    schemas = []
    at = library.find(b") -> ")
    while at >= 0:
        start = library.rfind(b"\0", max(0, at - _LONGEST), at) + 1
        end = library.find(b"\0", at, at + _LONGEST)
        match = _SCHEMA.fullmatch(library[start:end].decode("latin-1")) if start and end > 0 else None
        if match is not None and _are_arguments(match["arguments"]):
            schemas.append((match["op"], match["overload"] or "", match[0]))
        at = library.find(b") -> ", max(at + 1, end))
    return schemas


def _are_arguments(text: str) -> bool:
    """Whether text is a schema's list of arguments; a library also contains adjacent fragments of strings."""
    return not text or all(_ARGUMENT.fullmatch(part) for part in _COMMA.split(text))


def _listed(table: str) -> list[tuple[int, str]]:
    """(line, schema) of the section `custom`, which lists torch_npu's own ops."""
    schemas: list[tuple[int, str]] = []
    section = ""
    for number, line in enumerate(table.splitlines(), 1):
        if line[:1].isalpha():
            section = line.partition(":")[0]
        elif section == "custom" and (match := _FUNC.fullmatch(line)):
            schemas.append((number, _scalar(match["value"])))
    return schemas


def _scalar(value: str) -> str:
    """A scalar of YAML without its quotes."""
    return str(yaml.safe_load(value)) if value[0] in "'\"" else value.strip()
