"""Loading a pattern file by its path: the user's own file, or one written for another compile back end."""

from __future__ import annotations

import ast
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from fusionkit.errors import FusionKitError, MisuseError
from fusionkit.npu.facade import standing_in
from fusionkit.npu.target import current_facade
from fusionkit.store import sha256_file

_METHODS = ("name", "inputs", "pattern", "replacement")


def check_pattern_file(path: Path) -> None:
    """Read and parse the file without running it.

    Raises MisuseError with file and line when it is missing, unreadable or no Python.
    """
    try:
        ast.parse(path.read_text("utf-8"), filename=str(path))
    except OSError as error:
        raise MisuseError(
            f"{path}: cannot read ({error.strerror or error}); give the path of a pattern file"
        ) from error
    except SyntaxError as error:
        raise MisuseError(
            f"{path} line {error.lineno}: syntax error ({error.msg}); mend the pattern file"
        ) from error
    except (UnicodeDecodeError, ValueError) as error:
        raise MisuseError(f"{path}: not UTF-8 Python source ({error}); mend the pattern file") from error


def load_pattern_file(path: Path) -> list[type]:
    """Execute the file and return its pattern classes, in the order of its `...PatternGroup` lists.

    While it is executed, `torch_npu` can be imported: the facade of the active target stands in for it.
    Raises MisuseError naming the file, and the line where one is known.
    """
    check_pattern_file(path)
    module = _execute(path)
    groups = [
        value
        for name, value in vars(module).items()
        if name.endswith("PatternGroup") and isinstance(value, list | tuple)
    ]
    classes = [item for group in groups for item in group]
    if not classes:
        raise MisuseError(f"{path}: no list named ...PatternGroup with pattern classes; add one")
    for item in classes:
        if not isinstance(item, type):
            raise MisuseError(
                f"{path}: {item!r} in a pattern group is no class; put in what create(...) returns"
            )
        missing = [method for method in _METHODS if not callable(getattr(item, method, None))]
        if missing:
            raise MisuseError(f"{path}: pattern {item.__name__} lacks static method(s) {', '.join(missing)}")
    return classes


def _execute(path: Path) -> ModuleType:
    name = f"fusionkit_pattern_{sha256_file(path)[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise MisuseError(f"{path}: not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # inspect and dataclasses look a class's module up there
    try:
        with standing_in(current_facade()):
            spec.loader.exec_module(module)
    except FusionKitError:
        raise
    except (Exception, SystemExit) as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f" line {frames[-1].lineno}" if frames else ""
        what = (str(error).splitlines() or [""])[0]
        raise MisuseError(f"{path}{where}: {type(error).__name__}: {what}; mend the pattern file") from error
    finally:
        sys.modules.pop(name, None)
    return module
