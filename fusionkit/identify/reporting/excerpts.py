"""The original code of a candidate: its symbol, or of a long class the method in which the math stands."""

from __future__ import annotations

import ast
import copy
import hashlib
from dataclasses import dataclass

from fusionkit.identify.candidates import Candidate
from fusionkit.identify.source.files import source_lines

LONGEST = 60  # lines of a symbol that are shown whole
_AROUND = 12  # lines before and after the math where even the function is longer

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines `start` to `end` of a file, and a fingerprint of the symbol that names do not change."""

    start: int
    end: int
    text: str
    fingerprint: str


def excerpt(candidate: Candidate, text: str, tree: ast.Module) -> Excerpt | None:
    """What of `text` to show for a candidate; None where its symbol is not there any more."""
    node = symbol_node(candidate, tree)
    if node is None:
        return None
    start, end = _span(candidate, node)
    lines = source_lines(text)[start - 1 : end]
    return Excerpt(start, end, "".join(lines).rstrip("\n"), _fingerprint(candidate, node))


def symbol_node(candidate: Candidate, tree: ast.Module) -> _Definition | None:
    """The class or function of a candidate, found by name and line."""
    name = candidate.symbol.rpartition(".")[2]
    for node in ast.walk(tree):
        if isinstance(node, _Definition) and node.name == name and node.lineno == candidate.line:
            return node
    return None


def _span(candidate: Candidate, node: _Definition) -> tuple[int, int]:
    start, end = node.lineno, node.end_lineno or node.lineno
    if candidate.inherited_from:  # the math stands in another file
        return start, min(end, start + LONGEST)
    if isinstance(node, ast.ClassDef) and end - start >= LONGEST:
        inner = [item for item in node.body if isinstance(item, ast.FunctionDef) and _holds(item, candidate)]
        if inner:
            start, end = inner[0].lineno, inner[-1].end_lineno or inner[-1].lineno
    if end - start >= LONGEST and candidate.places:
        first, last = candidate.places[0], min(candidate.places[-1], candidate.places[0] + LONGEST)
        start, end = max(start, first - _AROUND), min(end, last + _AROUND)
    return start, end


def _holds(node: ast.FunctionDef, candidate: Candidate) -> bool:
    return any(node.lineno <= line <= (node.end_lineno or node.lineno) for line in candidate.places)


def _fingerprint(candidate: Candidate, node: _Definition) -> str:
    """Equal for the same code under another class name, docstrings and annotations aside; of a class, its methods."""
    own = [] if candidate.inherited_from else node.body
    methods = [item for item in own if isinstance(item, ast.FunctionDef) and _holds(item, candidate)]
    parts: list[ast.AST] = list(methods) if isinstance(node, ast.ClassDef) and methods else [node]
    dumps = [ast.dump(_Bare(node.name).visit(copy.deepcopy(part))) for part in parts]
    return hashlib.sha256("\n".join(dumps).encode("utf-8")).hexdigest()


class _Bare(ast.NodeTransformer):
    """Leaves out docstrings, annotations and the symbol's own name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, _Definition):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or [ast.Pass()]
            if node.name == self._name:
                node.name = ""
            if not isinstance(node, ast.ClassDef):
                node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.Name) and node.id == self._name:
            node.id = ""
        return node
