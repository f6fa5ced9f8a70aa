"""The files around a scanned one: imports and class inheritance are followed, configuration defaults looked up."""

from __future__ import annotations

import ast
import os.path
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path

from fusionkit.identify.source.files import SourceClass, SourceFile
from fusionkit.identify.source.values import Value

_LARGEST_IMPORT = 400_000  # characters; a file that is only imported is not worth more
_DEEPEST = 6  # bases of bases


_consulted: ContextVar[set[str] | None] = ContextVar("consulted", default=None)


@contextmanager
def consulted() -> Iterator[set[str]]:
    """Collect the paths of the other files that are read within the block."""
    paths: set[str] = set()
    token = _consulted.set(paths)
    try:
        yield paths
    finally:
        _consulted.reset(token)


def note_consulted(path: Path) -> None:
    """Say that what is found depends on the file at `path`."""
    paths = _consulted.get()
    if paths is not None:
        paths.add(str(path))


def imported_file(path: Path) -> SourceFile | None:
    """The parsed file at `path`; None where there is none that can be read."""
    note_consulted(path)
    return _parsed(path, stamp(path))


def stamp(path: Path) -> tuple[int, int]:
    """What tells one state of a file from another: when it was written, and its size; zeros where it is absent."""
    try:
        told = path.stat()
    except OSError:
        return 0, 0
    return told.st_mtime_ns, told.st_size


@lru_cache(maxsize=64)
def _parsed(path: Path, _stamp: tuple[int, int]) -> SourceFile | None:
    try:
        text = path.read_text("utf-8")
        return SourceFile(path, text) if len(text) <= _LARGEST_IMPORT else None
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def find_class(file: SourceFile, name: str) -> SourceClass | None:
    """The class that `name` (dotted, as `file` imports it) stands for, in this file or the one it comes from."""
    if name in file.classes:
        return file.classes[name]
    source, _, last = name.rpartition(".")
    origin = _imported(file, source) if source else None
    if origin is None:
        return None
    if last in origin.classes:
        return origin.classes[last]
    passed_on = origin.modules.get(last)
    return find_class(origin, passed_on) if passed_on and passed_on != name else None


def find_function(
    file: SourceFile, name: str
) -> tuple[SourceFile, ast.FunctionDef | ast.AsyncFunctionDef] | None:
    """The function that `name` stands for, with the file that it is written in."""
    if name in file.functions:
        return file, file.functions[name]
    source, _, last = name.rpartition(".")
    origin = _imported(file, source) if source else None
    if origin is not None and last in origin.functions:
        return origin, origin.functions[last]
    return None


def lineage(cls: SourceClass, depth: int = _DEEPEST) -> Iterator[SourceClass]:
    """The class, then its bases as far as they can be read, nearest first."""
    yield cls
    if depth:
        for base in cls.bases:
            found = find_class(cls.file, base)
            if found is not None and found is not cls:
                yield from lineage(found, depth - 1)


def attribute(cls: SourceClass, name: str) -> Value | None:
    """What `__init__` of the class or of one of its bases gives to an attribute."""
    for item in lineage(cls):
        if name in item.attributes:
            return item.attributes[name]
    return None


def _imported(file: SourceFile, module: str) -> SourceFile | None:
    for path in _candidates(file.path, module):
        if path.is_file():
            return imported_file(path)
    return None


def _candidates(path: Path, module: str) -> Iterator[Path]:
    """Where a module that `path` imports may lie: relative to it, or below a folder that it stands in."""
    if module.startswith("."):
        level = len(module) - len(module.lstrip("."))
        folder = path.parent
        for _ in range(level - 1):
            folder = folder.parent
        yield from _module_files(folder, module[level:])
        return
    top = module.partition(".")[0]
    for folder in path.parents:
        if folder.name == top:
            yield from _module_files(folder.parent, module)
            return
    yield from _module_files(path.parent, module)


def _module_files(folder: Path, module: str) -> Iterator[Path]:
    if module:
        base = folder / os.path.join(*module.split("."))
        yield base.with_suffix(".py")
        yield base / "__init__.py"
    else:
        yield folder / "__init__.py"
