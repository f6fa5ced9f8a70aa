"""The parameter cell of a notebook: annotated literals, with at most one level of dict, tagged `parameters`.

    subject: str = "flux"
    expected_sites: dict[str, int | None] = {"rms_norm": None}

The cell is parsed, not executed.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusionkit.errors import MisuseError
from fusionkit.store import read_json

_SCALARS: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (float, int), "bool": (bool,)}
_PERCENT_CELL = re.compile(r"^# %%(?P<marker>.*)$")
_PERCENT_TAGS = re.compile(r"tags=(\[[^\]]*\])")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One annotated literal of a parameter cell; `line` counts within the cell, from 1."""

    name: str
    annotation: str
    default: Any
    line: int


@dataclass(frozen=True, slots=True)
class NotebookSpec:
    """The parameters of a notebook."""

    path: Path
    parameters: tuple[Parameter, ...]

    def get(self, name: str) -> Parameter | None:
        """The parameter of that name, or None."""
        return next((p for p in self.parameters if p.name == name), None)


def read_spec(path: Path) -> NotebookSpec:
    """Read the parameter cell of a notebook (.ipynb, or .py in percent format) without executing it.

    Raises MisuseError unless there is exactly one such cell with annotated literals only.
    """
    cells = _ipynb_cells(path) if path.suffix == ".ipynb" else _percent_cells(path)
    if len(cells) != 1:
        raise MisuseError(f"{path}: has {len(cells)} cells tagged `parameters`; it needs exactly one")
    try:
        body = ast.parse(cells[0]).body
    except SyntaxError as error:
        raise MisuseError(f"{path}: parameter cell line {error.lineno}: {error.msg}; correct it") from error
    return NotebookSpec(path, tuple(_parameter(path, s) for s in body if not _is_docstring(s)))


def _parameter(path: Path, statement: ast.stmt) -> Parameter:
    where = f"{path}: parameter cell line {statement.lineno}"
    if not (
        isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value
    ):
        raise MisuseError(f"{where}: only `name: type = literal` may stand here")
    try:
        default = ast.literal_eval(statement.value)
        annotation = ast.unparse(statement.annotation)
        fitting = fits(default, annotation)
    except (ValueError, TypeError) as error:
        raise MisuseError(
            f"{where}: {one_line(error)}; use literals of str, int, float, bool, None"
        ) from error
    if not fitting or (isinstance(default, dict) and any(isinstance(v, dict) for v in default.values())):
        raise MisuseError(f"{where}: {default!r} does not fit {annotation} with at most one level of dict")
    return Parameter(statement.target.id, annotation, default, statement.lineno)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def fits(value: Any, annotation: str) -> bool:
    """Whether a value fits the annotation. Raises ValueError for an annotation that no parameter can have."""
    return _fits_expr(value, ast.parse(annotation, mode="eval").body)


def _fits_expr(value: Any, kind: ast.expr) -> bool:
    if isinstance(kind, ast.BinOp) and isinstance(kind.op, ast.BitOr):
        return _fits_expr(value, kind.left) or _fits_expr(value, kind.right)
    if isinstance(kind, ast.Constant) and kind.value is None:
        return value is None
    if isinstance(kind, ast.Name) and kind.id in _SCALARS:
        return _is_scalar(value, kind.id)
    if isinstance(kind, ast.Subscript) and isinstance(kind.value, ast.Name):
        if kind.value.id == "list":
            return isinstance(value, list) and all(_fits_expr(v, kind.slice) for v in value)
        if kind.value.id == "dict" and isinstance(kind.slice, ast.Tuple) and len(kind.slice.elts) == 2:
            return isinstance(value, dict) and all(
                isinstance(k, str) and _fits_expr(v, kind.slice.elts[1]) for k, v in value.items()
            )
    raise ValueError(f"the annotation {ast.unparse(kind)} is not one that a parameter can have")


def _is_scalar(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "bool"
    return isinstance(value, _SCALARS[kind]) and not (isinstance(value, float) and not math.isfinite(value))


def _ipynb_cells(path: Path) -> list[str]:
    notebook = read_json(path)
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise MisuseError(f"{path}: not a notebook of format 4 (it has no `cells`)")
    tagged = [c for c in cells if "parameters" in c.get("metadata", {}).get("tags", ())]
    return ["".join(c.get("source", "")) for c in tagged if c.get("cell_type") == "code"]


def _percent_cells(path: Path) -> list[str]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MisuseError(f"{path}: cannot read ({one_line(error)})") from error
    cells: list[str] = []
    tagged = False
    for line in text.splitlines():
        marker = _PERCENT_CELL.match(line)
        if marker:
            tags = _PERCENT_TAGS.search(marker["marker"])
            tagged = tags is not None and '"parameters"' in tags[1]
            cells += [""] if tagged else []
        elif tagged:
            cells[-1] += line + "\n"
    return cells


def one_line(error: Exception) -> str:
    """The message of an error, on one line."""
    return " ".join((getattr(error, "strerror", None) or str(error)).split())
