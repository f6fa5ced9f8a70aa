"""The index of one torch_npu package's API, cached by the package's hash."""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fusionkit.encoding import Result, decode, plain
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
class IndexEntry(Result):
    """A package's documentation of one name; `signature` is set for Python classes and functions, `schemas` for ops."""

    doc: DocText
    schemas: tuple[ApiSchema, ...] = ()
    signature: str = ""


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
    try:
        index = decode(_Contents, read_json(kept), str(kept))
    except MisuseError:  # absent, damaged or of an earlier format
        with open_package(path) as opened:
            index = _collect(opened)
        with contextlib.suppress(RunBrokenError):
            write_json(kept, plain(index))
    return ApiIndex(path, index.version, dict(sorted(index.entries.items())))


@dataclass(frozen=True, slots=True)
class _Contents:
    version: str
    entries: dict[str, IndexEntry]


def _collect(opened: PackageReader) -> _Contents:
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
    return _Contents(_version(opened), entries)


def _version(opened: PackageReader) -> str:
    """`__version__` of torch_npu/version.py, "" without one."""
    for node in parse_module(opened, _VERSION_FILE).body:
        match node:
            case ast.Assign([ast.Name("__version__"), *_], ast.Constant(version)):
                return str(version)
    return ""
