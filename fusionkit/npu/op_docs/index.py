"""The index of one torch_npu package's API, cached by the package's hash."""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusionkit.errors import MisuseError, RunBrokenError
from fusionkit.npu.dry.cache_folder import OP_DOCS, cache_root
from fusionkit.npu.op_docs import docstrings, package, registrations, sections
from fusionkit.npu.op_docs.docstrings import (
    DOC_MODULES,
    PYTHON_PACKAGES,
    DocText,
    parse_module,
    read_docstrings,
    read_python_api,
)
from fusionkit.npu.op_docs.package import PackageReader, open_package, package_digest
from fusionkit.npu.op_docs.registrations import LIBRARIES, TABLES, ApiSchema, read_schemas
from fusionkit.npu.versions import PACKAGE
from fusionkit.store import read_json, sha256_bytes, sha256_file, write_json

_VERSION_FILE = f"{PACKAGE}/version.py"
_READ = (
    _VERSION_FILE,
    *(file for file, _, _ in DOC_MODULES),
    *(file for file, _ in LIBRARIES),
    *TABLES,
    *(f"{PACKAGE}/{folder}" for folder in PYTHON_PACKAGES),
)
_READERS = (docstrings, package, registrations, sections)


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A package's documentation of one name; `signature` is set for Python classes and functions, `schemas` for ops."""

    doc: DocText
    schemas: tuple[ApiSchema, ...] = ()
    signature: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "text": self.doc.text,
            "where": self.doc.where,
            "superseded": list(self.doc.superseded),
            "schemas": [schema.to_dict() for schema in self.schemas],
            "signature": self.signature,
        }


# The entry of a name that the package lacks.
NOTHING = IndexEntry(DocText("", ""))


@dataclass(frozen=True, slots=True)
class ApiIndex:
    """The API of one package: name below torch_npu -> entry, sorted by name."""

    path: Path
    version: str
    entries: Mapping[str, IndexEntry]


def read_index(path: Path) -> ApiIndex:
    """The index of a wheel or folder, from the cache if its files are unchanged.

    Raises MisuseError if it contains no torch_npu. An unwritable cache is not used.
    """
    status = path.stat()
    return _read_index(path, status.st_mtime_ns, status.st_size, cache_root())


@functools.lru_cache(maxsize=4)
def _read_index(path: Path, _mtime_ns: int, _size: int, cache: Path) -> ApiIndex:
    made_by = [sha256_file(Path(str(module.__file__))) for module in _READERS]
    key = sha256_bytes(f"{package_digest(path, _READ)}{made_by}".encode())
    kept = cache / OP_DOCS / f"{key}.json"
    value = _kept(kept)
    if value is None:
        with open_package(path) as opened:
            value = _collect(opened)
        with contextlib.suppress(RunBrokenError):
            write_json(kept, value)
    entries = {name: _entry(entry) for name, entry in sorted(value["entries"].items())}
    return ApiIndex(path, value["version"], entries)


def _kept(file: Path) -> dict[str, Any] | None:
    """The cached index; None if it is absent or damaged."""
    with contextlib.suppress(MisuseError):
        value = read_json(file)
        if isinstance(value, dict) and {"version", "entries"} <= value.keys():
            return value
    return None


def _entry(value: Mapping[str, Any]) -> IndexEntry:
    schemas = tuple(ApiSchema(s["op"], s["overload"], s["text"], tuple(s["where"])) for s in value["schemas"])
    return IndexEntry(
        DocText(value["text"], value["where"], tuple(value["superseded"])), schemas, value["signature"]
    )


def _collect(opened: PackageReader) -> dict[str, Any]:
    texts = read_docstrings(opened)
    schemas: dict[str, list[ApiSchema]] = {}
    for schema in read_schemas(opened):
        schemas.setdefault(schema.op, []).append(schema)
        if f"{schema.op}.{schema.overload}" in texts:
            schemas.setdefault(f"{schema.op}.{schema.overload}", []).append(schema)
    entries = {
        name: IndexEntry(texts.get(name, NOTHING.doc), tuple(schemas.get(name, ())))
        for name in texts.keys() | schemas.keys()
    }
    for name, api in read_python_api(opened).items():
        entries[name] = IndexEntry(DocText(api.text, api.where), signature=api.signature)
    if not entries:
        raise MisuseError(f"{opened.path}: holds nothing of torch_npu's API; give a wheel of torch-npu")
    return {
        "version": _version(opened),
        "entries": {name: entry.to_dict() for name, entry in entries.items()},
    }


def _version(opened: PackageReader) -> str:
    """`__version__` of torch_npu/version.py, "" without one."""
    for node in parse_module(opened, _VERSION_FILE).body:
        match node:
            case ast.Assign([ast.Name("__version__"), *_], ast.Constant(version)):
                return str(version)
    return ""
