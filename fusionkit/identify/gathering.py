"""Which files a scan reads: files, folders, and installed packages by name, without importing any."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from fusionkit.errors import MisuseError

_HEADER = 1000  # characters in which a generated file names its source
_SKIPPED = frozenset({"__pycache__", "node_modules"})


def gather(targets: Iterable[str | Path]) -> list[Path]:
    """The Python files of files, folders (with all below) and packages, each once, sorted within its target.

    Links to folders are not followed, so that a loop of them has an end. Raises MisuseError for a target that is
    neither a path nor an installed package, and where there is no Python file at all.
    """
    found: dict[str, Path] = {}
    for target in targets:
        for path in _files(target):
            found.setdefault(os.path.realpath(path), path)
    if not found:
        told = ", ".join(str(target) for target in targets)
        raise MisuseError(f"{told}: no Python file there; name a file, a folder or an installed package")
    return list(found.values())


def is_modular_source(path: Path) -> bool:
    """Whether a modeling file beside a modular_*.py was generated from it: that one runs, and names its source."""
    if not path.name.startswith("modular_"):
        return False
    beside = path.with_name(path.name.replace("modular_", "modeling_", 1))
    try:
        with beside.open(encoding="utf-8", errors="replace") as stream:
            return path.name in stream.read(_HEADER)
    except OSError:
        return False


def _files(target: str | Path) -> Iterator[Path]:
    if not str(target):
        raise MisuseError("an empty name is no path; say . for the folder that you are in")
    path = Path(target)
    if path.is_dir():
        yield from _below(path)
    elif path.is_file():
        yield path
    elif path.exists():
        raise MisuseError(f"{target}: no regular file; a scan reads files and folders")
    else:
        yield from _of_package(str(target))


def _below(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        for name in sorted(names):
            if name.endswith(".py") and not name.startswith(".") and Path(where, name).is_file():
                yield Path(where, name)  # and no pipe or device, which would never end


def _of_package(name: str) -> Iterator[Path]:
    """The files of an installed package or module: a.b.c is looked for as a path below a."""
    top, *rest = name.split(".")
    spec = importlib.machinery.PathFinder.find_spec(top, sys.path) if top.isidentifier() else None
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    if spec is not None and not places and spec.origin and not rest:
        yield Path(spec.origin)
        return
    for place in places:
        inside = Path(place, *rest)
        if inside.is_dir():
            yield from _below(inside)
            return
        if inside.with_suffix(".py").is_file():
            yield inside.with_suffix(".py")
            return
    raise MisuseError(f"{name}: neither a file, a folder nor an installed package")
