"""The rules that every notebook keeps: few cells, no logic, one parameters cell, evidence last.

`violations(notebook)` takes an nbformat 4 notebook and returns one line per broken rule.
"""

from __future__ import annotations

import ast
from typing import Any

MAX_CELLS = 14

# Logic belongs into fusionkit, where it is typed and tested; comprehensions, `if` and `with` are allowed.
FORBIDDEN: dict[type[ast.AST], str] = {
    ast.FunctionDef: "def",
    ast.AsyncFunctionDef: "async def",
    ast.ClassDef: "class",
    ast.Lambda: "lambda",
    ast.For: "for",
    ast.AsyncFor: "async for",
    ast.While: "while",
    ast.Try: "try",
    ast.TryStar: "try",
}

# A widget shows nothing in an archived page, so static calls have to follow it.
WIDGETS = {"aligner", "candidate_chooser", "site_explorer"}
STATIC = {"alignments", "bar_chart_svg", "chart", "html_table", "table"}


def violations(notebook: Any) -> list[str]:
    """Return one line for each rule that `notebook` breaks."""
    cells = notebook.cells
    broken = []
    if len(cells) > MAX_CELLS:
        broken.append(f"{len(cells)} cells, at most {MAX_CELLS} allowed")
    if not cells or cells[0].cell_type != "markdown" or not cells[0].source.lstrip().startswith("#"):
        broken.append("the first cell is not markdown that starts with a heading")
    trees, unreadable = _parse(cells)
    broken += unreadable
    for number, tree in trees.items():
        broken += [
            f"cell {number} line {node.lineno}: {FORBIDDEN[type(node)]} in a notebook; move it into fusionkit"
            for node in ast.walk(tree)
            if type(node) in FORBIDDEN
        ]
    return broken + _parameters(cells, trees) + _evidence_last(cells, trees) + _static_after_widget(trees)


def _parse(cells: Any) -> tuple[dict[int, ast.Module], list[str]]:
    """Return the syntax tree of each code cell by its number from 1, and a line for each that has none."""
    trees, unreadable = {}, []
    for number, cell in enumerate(cells, start=1):
        if cell.cell_type == "code":
            try:
                trees[number] = ast.parse(cell.source)
            except SyntaxError as error:
                unreadable.append(f"cell {number} line {error.lineno}: not Python ({error.msg})")
    return trees, unreadable


def _parameters(cells: Any, trees: dict[int, ast.Module]) -> list[str]:
    tagged = [n for n, cell in enumerate(cells, start=1) if "parameters" in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        return [f"{len(tagged)} cells tagged parameters, exactly one expected"]
    number = tagged[0]
    if number not in trees:
        return [f"cell {number}: the parameters cell holds no Python"]
    return [
        f"cell {number} line {statement.lineno}: a parameter is `name: type = literal`, no dict in a dict"
        for statement in trees[number].body
        if not _is_parameter(statement)
    ]


def _is_parameter(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
        return False
    if statement.value is None:
        return False
    try:
        value = ast.literal_eval(statement.value)
    except ValueError:
        return False
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return not any(isinstance(item, dict) for item in inner)


def _evidence_last(cells: Any, trees: dict[int, ast.Module]) -> list[str]:
    code = [number for number, cell in enumerate(cells, start=1) if cell.cell_type == "code"]
    if code and code[-1] in trees and any("write" in name for name in _calls(trees[code[-1]])):
        return []
    return ["the last code cell does not write the evidence (no call with `write` in its name)"]


def _static_after_widget(trees: dict[int, ast.Module]) -> list[str]:
    numbers = list(trees)
    broken = []
    for position, number in enumerate(numbers):
        names = _calls(trees[number])
        following = [name for later in numbers[position + 1 : position + 2] for name in _calls(trees[later])]
        if WIDGETS.intersection(names) and not STATIC.intersection(names + following):
            broken.append(f"cell {number}: no static table or picture follows the widget")
    return broken


def _calls(tree: ast.Module) -> list[str]:
    """Return the names called in `tree`: `f(...)` and `a.b.f(...)` both give f."""
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [f.id for f in called if isinstance(f, ast.Name)] + [
        f.attr for f in called if isinstance(f, ast.Attribute)
    ]
