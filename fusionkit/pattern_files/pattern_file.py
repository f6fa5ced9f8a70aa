"""Loading a pattern file by its path: the user's own file, or one written for another compile back end."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from fusionkit.errors import FusionKitError, MisuseError
from fusionkit.npu.facade import standing_in
from fusionkit.npu.target import current_facade
from fusionkit.pattern_files.beside import modules_beside
from fusionkit.pattern_files.checking import check_pattern_file
from fusionkit.pattern_files.stand_ins import foreign_surroundings
from fusionkit.pattern_files.time_limit import within_limits
from fusionkit.store import sha256_file

_METHODS = ("name", "inputs", "pattern", "replacement")
_ENTRIES = re.compile(r"register_\w+_graph_entries")


@dataclass(frozen=True, slots=True)
class PatternFile:
    """The contents of a pattern file: pattern classes, in the order of its groups, and registering functions.

    `entries`: the functions register_..._graph_entries(pattern_pass), in the file's order; each adds
    hand-written GraphPatternEntry objects to a torch PatternMatcherPass. `groups`: list name -> classes.
    """

    path: Path
    patterns: tuple[type, ...]
    entries: tuple[Callable[[Any], Any], ...]
    groups: Mapping[str, tuple[type, ...]] = field(default_factory=dict)


def read_pattern_file(path: Path) -> PatternFile:
    """Execute the file and return its pattern classes and registering functions.

    During execution `import torch_npu` yields the facade of the active target, the imports of MindIE-SD's pattern
    files resolve to stand-ins (see pattern_files.stand_ins), and modules beside the file are found by their names.
    Raises MisuseError naming the file, and the line if known, when the file fails, exceeds the time limit or tries to
    end the process.
    """
    check_pattern_file(path)
    names = vars(_execute(path))
    entries = tuple(value for name, value in names.items() if _ENTRIES.fullmatch(name) and callable(value))
    groups = {
        name: tuple(value)
        for name, value in names.items()
        if name.endswith("PatternGroup") and isinstance(value, list | tuple)
    }
    classes = tuple(item for group in groups.values() for item in group)
    if not classes and not entries:
        raise MisuseError(
            f"{path}: no list named ...PatternGroup with pattern classes, and no function"
            " register_..._graph_entries(pattern_pass); add one"
        )
    for item in classes:
        _require_pattern(item, path)
    return PatternFile(path, classes, entries, groups)


def _require_pattern(item: Any, path: Path) -> None:
    if not isinstance(item, type):
        raise MisuseError(f"{path}: {item!r} in a pattern group is no class; put in what create(...) returns")
    missing = [method for method in _METHODS if not callable(getattr(item, method, None))]
    if missing:
        raise MisuseError(f"{path}: pattern {item.__name__} lacks static method(s) {', '.join(missing)}")


def _execute(path: Path) -> ModuleType:
    """Run the file's top level within the time limit, with the stand-ins that its imports need."""
    root = f"fusionkit_pattern_{sha256_file(path)[:12]}"
    with foreign_surroundings(path, root) as name, standing_in(current_facade()), modules_beside(path):
        importlib.import_module(name.rpartition(".")[0])  # the packages that its relative imports go up
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise MisuseError(f"{path}: not a Python file; its name must end in .py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # where inspect and dataclasses look up a class's module
        try:
            with within_limits(f"{path}: its import"):
                spec.loader.exec_module(module)
        except FusionKitError as error:
            if str(path) in str(error):
                raise
            raise MisuseError(f"{path}: {error}") from error
        except (Exception, SystemExit) as error:
            trace = traceback.extract_tb(error.__traceback__)
            frames = [frame for frame in trace if Path(frame.filename).resolve() == path.resolve()]
            where = f" line {frames[-1].lineno}" if frames else ""
            what = (str(error).splitlines() or [""])[0]
            raise MisuseError(
                f"{path}{where}: {type(error).__name__}: {what}; mend the pattern file"
            ) from error
    return module
