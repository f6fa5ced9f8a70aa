"""Importing the modules beside a pattern file by their plain names."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from fusionkit.subjects.source_paths import is_installed

_KEPT = ("fusionkit", "__main__")


@contextmanager
def modules_beside(path: Path) -> Iterator[None]:
    """In the block the modules in the file's folder can be imported, as Python does it for a script.

    A module of the same name from another folder, such as one beside another pattern file, is set aside meanwhile;
    modules of installed packages stay. Other modules stay imported, so that ops are registered once in a process.
    """
    folder = path.resolve().parent
    names = {entry.stem for entry in folder.iterdir() if _is_module(entry)} - set(_KEPT)
    others = {name for name in names & sys.modules.keys() if _is_elsewhere(sys.modules[name], folder)}
    aside = _remove(others)
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        _remove(others)
        sys.modules.update(aside)


def _is_module(entry: Path) -> bool:
    return entry.suffix == ".py" or (entry / "__init__.py").is_file()


def _is_elsewhere(module: ModuleType, folder: Path) -> bool:
    """Whether a module of user code lies outside the folder."""
    file = getattr(module, "__file__", None)
    if file is None or is_installed(file):
        return False
    place = Path(file).resolve()
    return folder not in (place.parent, place.parent.parent if place.name == "__init__.py" else place.parent)


def _remove(packages: set[str]) -> dict[str, ModuleType]:
    """Remove modules and their submodules from sys.modules, and return them."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in packages}
