"""A module with its replaced twin beside it: the original as imported, and the new text run with target cpu as torch_npu."""

from __future__ import annotations

import builtins
import importlib
import types
from pathlib import Path

from fusionkit.identify.replacing import Refused, Replacement, replace_site
from fusionkit.identify.scan_file import Site, sites_of_file
from fusionkit.identify.source.files import SourceFile


def replaced(name: str, symbol: str, op: str) -> Replacement:
    """The replacement at a symbol of an importable module."""
    module = importlib.import_module(name)
    path = Path(module.__file__)
    file = SourceFile(path, path.read_text("utf-8"))
    result = replace_site(file, site_of(file, symbol, op))
    assert not isinstance(result, Refused), result.reason
    return result


def of_text(text: str, folder: Path, op: str) -> Replacement | Refused:
    """What is written for the one site of an op in a text."""
    file = SourceFile(folder / "model.py", text)
    (site,) = [site for site in sites_of_file(file) if site.op == op]
    return replace_site(file, site)


def site_of(file: SourceFile, symbol: str, op: str) -> Site:
    return next(site for site in sites_of_file(file) if (site.symbol, site.op) == (symbol, op))


def twin(
    name: str, new_text: str, facade: types.ModuleType, calls: list[str] | None = None
) -> types.ModuleType:
    """The replaced text as a module of the same package, in which torch_npu is the facade and is there."""
    original = importlib.import_module(name)
    module = types.ModuleType(name)  # decorators look names up in the module of this name
    module.__package__ = original.__package__
    module.__file__ = original.__file__
    told = Recording(facade, calls if calls is not None else [])

    def imported(wanted, *rest, **more):
        return told if wanted == "torch_npu" else builtins.__import__(wanted, *rest, **more)

    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": imported}
    exec(compile(new_text, original.__file__.replace(".py", "_replaced.py"), "exec"), module.__dict__)  # noqa: S102 - what is tested is a text
    module.torch_npu = told
    for switch in ("is_torch_npu_available", "is_npu_available"):
        module.__dict__[switch] = lambda *_: True
    return module


class Recording:
    """The facade, and the names of what was called on it."""

    def __init__(self, facade: types.ModuleType, calls: list[str]) -> None:
        self._facade, self._calls = facade, calls

    def __getattr__(self, name: str):
        self._calls.append(name)
        return getattr(self._facade, name)
