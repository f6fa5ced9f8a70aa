"""The original module, imported as it is, and the rewritten text as a second module beside it.

Only the second one sees a torch_npu: its `import torch_npu` gives the facade of target cpu, through an `__import__`
of its own, never through sys.modules, where other libraries would find it.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.abc
import importlib.util
import linecache
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from fusionkit.errors import MisuseError
from fusionkit.identify.proving.switches import AVAILABILITY, Switches
from fusionkit.identify.proving.witness import BRANCH, Branches
from fusionkit.npu.facade import TorchNpu, torch_npu_module


class _Overlay(ModuleType):
    """A module as the rewritten text imports from it: with its own answer to whether torch_npu is there."""

    def __init__(self, module: ModuleType, answers: Mapping[str, Callable[..., bool]]) -> None:
        super().__init__(module.__name__)
        self._module = module
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        answer = self._answers.get(name)
        real = getattr(self._module, name)
        return real if answer is None else answer


class _TextLoader(importlib.abc.SourceLoader):
    """Loads a module from a text; inspect.getsource finds it too, and shows it without the marks."""

    def __init__(self, text: str, filename: str, tree: ast.Module) -> None:
        self._text, self._filename, self._tree = text, filename, tree

    def get_filename(self, fullname: str) -> str:  # noqa: ARG002
        """Where the text would lie."""
        return self._filename

    def get_data(self, path: str | bytes) -> bytes:  # noqa: ARG002
        """The text."""
        return self._text.encode("utf-8")

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        """The code of the tree, which is the text's with marks in it; nothing is cached on disk."""
        code: CodeType = compile(self._tree, self._filename, "exec", dont_inherit=True)
        return code


def import_original(path: Path) -> ModuleType:
    """The module of a file by its dotted name in the package it belongs to; a loose file by its own name.

    Raises MisuseError where that name belongs to another file, and whatever the import raises.
    """
    names, folder = [] if path.stem == "__init__" else [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    if len(names) <= 1 and path.stem != "__init__":
        return _import_loose(path)
    name = ".".join(names)
    module = importlib.import_module(name)
    if module.__file__ is None or not path.samefile(module.__file__):
        raise MisuseError(f"{path}: the name {name} belongs to {module.__file__} here; it cannot be imported")
    return module


def _import_loose(path: Path) -> ModuleType:
    name = path.stem if path.stem not in sys.modules else f"{path.stem}__loose"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise MisuseError(f"{path}: not a file that Python imports")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def import_replaced(
    original: ModuleType, new_text: str, facade: TorchNpu, switches: Switches, branches: Branches
) -> ModuleType:
    """The rewritten text run as a module of the same package as `original`, with its condition true.

    `branches` counts each run of a new branch.
    Raises what running the text raises.
    """
    name = f"{original.__name__}__replaced"
    path = Path(original.__file__ or f"{name}.py")
    filename = str(path.with_name(f"{path.stem}__replaced.py"))
    linecache.cache[filename] = (len(new_text), None, new_text.splitlines(keepends=True), filename)
    loader = _TextLoader(new_text, filename, switches.marked(BRANCH))
    spec = importlib.util.spec_from_loader(name, loader, origin=filename)
    if spec is None:
        raise MisuseError(f"{filename}: no module can be made of it")
    module = importlib.util.module_from_spec(spec)
    module.__package__, module.__file__ = original.__package__, filename
    torch_npu = torch_npu_module(facade, available=False)
    own = {"__import__": _importer(torch_npu, switches), BRANCH: branches}
    vars(module)["__builtins__"] = {**vars(builtins), **own}
    sys.modules[name] = module
    loader.exec_module(module)
    switches.turn_on_names(module)
    return module


def _importer(torch_npu: ModuleType, switches: Switches) -> Callable[..., Any]:
    """`__import__` of the replaced module alone."""

    def find(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> Any:
        if level == 0 and name.partition(".")[0] == "torch_npu":
            return torch_npu
        found = builtins.__import__(name, globals, locals, fromlist, level)
        asked = set(fromlist or ()) & AVAILABILITY
        return _Overlay(found, dict.fromkeys(asked, switches.available)) if asked else found

    return find
