"""One file: every place that an op could take, by reading it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fusionkit.identify.ops import HAZARDS, OP_NAMES
from fusionkit.identify.reading import UnreadableError
from fusionkit.identify.rules.table import CONTAINED, RULES
from fusionkit.identify.rules.unit import Unit
from fusionkit.identify.source.evaluate import FunctionNode
from fusionkit.identify.source.files import SourceClass, SourceFile, source_lines


@dataclass(frozen=True, slots=True)
class Site:
    """One symbol whose code an op could take the place of.

    `line`, `end_line`: of the symbol's class or def. `places`: the lines at which the math ends. `hazards`: in the
    order of ops.HAZARDS.
    """

    op: str
    symbol: str
    line: int
    end_line: int
    places: tuple[int, ...]
    hazards: tuple[str, ...]


def sites_of_text(path: Path, text: str) -> list[Site]:
    """Every site of a file, by line. Raises SyntaxError (ValueError for null bytes) if it is not Python 3."""
    return sites_of_file(SourceFile(path, text))


def sites_of_file(file: SourceFile) -> list[Site]:
    """Every site of a parsed file, by line. Raises UnreadableError where expressions are nested without end."""
    try:
        return _sites(units_of(file))
    except RecursionError as error:
        raise UnreadableError("an expression is nested too deeply to be read") from error


def sites_of_class(cls: SourceClass) -> list[Site]:
    """The sites of one class of a file. Raises UnreadableError like sites_of_file."""
    try:
        return _sites([Unit(cls.file, method, cls) for method in cls.methods.values()])
    except RecursionError as error:
        raise UnreadableError("an expression is nested too deeply to be read") from error


def _sites(units: Iterable[Unit]) -> list[Site]:
    found: dict[tuple[ast.AST, str, str], tuple[ast.AST, set[int], set[str]]] = {}
    for unit in units:
        for rule in RULES:
            for place in rule(unit):
                node = symbol_node(unit)
                _, lines, hazards = found.setdefault((node, unit.symbol, place.op), (node, set(), set()))
                lines.add(place.value.line)
                hazards.update(place.hazards)
    told = [
        _site(symbol, op, *rest)
        for (node, symbol, op), rest in found.items()
        if (node, symbol, CONTAINED.get(op, "")) not in found
    ]
    return sorted(told, key=lambda site: (site.line, OP_NAMES.index(site.op)))


def units_of(file: SourceFile) -> Iterator[Unit]:
    """Every function and method of a file that the rules look at."""
    for function in file.every_function:
        yield Unit(file, function)
    for cls in file.every_class:
        for method in cls.methods.values():
            yield Unit(file, method, cls)


def place_lines(site: Site, file: SourceFile) -> list[str]:
    """The source lines at which the places of a site stand."""
    lines = source_lines(file.text)
    return [lines[line - 1] for line in site.places if line <= len(lines)]


def symbol_node(unit: Unit) -> ast.ClassDef | FunctionNode:
    """The class or function that a unit's symbol names."""
    return unit.node if unit.cls is None or "." in unit.symbol else unit.cls.node


def _site(symbol: str, op: str, node: ast.AST, lines: set[int], hazards: set[str]) -> Site:
    start, end = getattr(node, "lineno", 1), getattr(node, "end_lineno", None)
    order = list(HAZARDS)
    return Site(
        op, symbol, start, end or start, tuple(sorted(lines)), tuple(sorted(hazards, key=order.index))
    )
