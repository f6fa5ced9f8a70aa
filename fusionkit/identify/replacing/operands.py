"""Operands as source text: how a value is written at the place where the fused op is called."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from fusionkit.identify.replacing.replacement import Unfit
from fusionkit.identify.replacing.statements import Block, Statements, names
from fusionkit.identify.rules.unit import Unit
from fusionkit.identify.source.values import Value

_SIMPLE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant, ast.Tuple, ast.List)


@dataclass(frozen=True, slots=True)
class Operand:
    """An expression's text, and the names in it, which mean what they hold before the branch."""

    text: str
    names: frozenset[str]


class Start:
    """The point right before one statement of a function: what a value is called there."""

    def __init__(self, unit: Unit, statements: Statements, block: Block, first: int) -> None:
        self.unit, self.statements, self.statement = unit, statements, block[first]
        self.position = (block[first].lineno, block[first].col_offset)

    def operand(self, value: Value) -> Operand:
        """How `value` is written here. Raises Unfit where no name or expression holds it any more."""
        name = self._name(value)
        if name is not None:
            return Operand(name, frozenset({name}))
        node = value.node
        if not isinstance(node, ast.expr) or value.op in ("loop", "part", "either", "setitem"):
            raise Unfit("an operand has no name where the fused op is called")
        read, _ = names(node)
        since = self._written_between(self.position, (node.lineno, node.col_offset))
        before = self._written_between((node.lineno, node.col_offset), self.position)
        if read & (since | before):
            raise Unfit(
                f"{' and '.join(sorted(read & (since | before)))} changes before the fused op is called"
            )
        return Operand(grouped(self.statements.source(node), node), frozenset(read))

    def written_since(self, node: ast.expr) -> set[str]:
        """The names that are written between an expression and here."""
        return self._written_between((node.lineno, node.col_offset), self.position)

    def _name(self, value: Value) -> str | None:
        node, name, bound = value.node, "", (0, 0)
        if value.op == "param":
            name = value.name
        elif value.op in ("part", "loop") and isinstance(node, ast.Name):
            name, bound = node.id, (node.lineno, node.col_offset)
        elif value.op == "either" and value.name.isidentifier():
            name = value.name
            bound = self._last_bound(name)
        elif isinstance(node, ast.expr):
            name, bound = self._assigned(node)
        if not name or bound >= self.position:
            return None
        return None if name in self._written_between(bound, self.position) else name

    def _assigned(self, node: ast.expr) -> tuple[str, tuple[int, int]]:
        """The name that an expression is assigned to, and where that ends."""
        try:
            held = self.statements.statement(node)
        except Unfit:
            return "", (0, 0)
        target: ast.expr | None = None
        if isinstance(held, ast.Assign) and held.value is node and len(held.targets) == 1:
            target = held.targets[0]
        elif isinstance(held, ast.AugAssign) and self.statements.parent(node) is None:
            target = held.target
        if not isinstance(target, ast.Name):
            return "", (0, 0)
        return target.id, (held.end_lineno or 0, held.end_col_offset or 0)

    def _last_bound(self, name: str) -> tuple[int, int]:
        """The end of the outermost branch before here that writes a name."""
        for item in reversed(self.statements.block(self.statement)):
            if (item.lineno, item.col_offset) < self.position and name in names(item)[1]:
                return item.end_lineno or 0, item.end_col_offset or 0
        return (10**9, 0)

    def _written_between(self, start: tuple[int, int], end: tuple[int, int]) -> set[str]:
        """The names that are written after `start` and before `end`."""
        found = set()
        for item in ast.walk(self.statements.function):
            if isinstance(item, ast.Name) and not isinstance(item.ctx, ast.Load):
                place = (item.lineno, item.col_offset)
                if start < place < end:
                    found.add(item.id)
        return found


def grouped(text: str, node: ast.AST) -> str:
    """The text in brackets unless it binds as tightly as a call's target has to."""
    return text if isinstance(node, _SIMPLE) and not isinstance(node, ast.Tuple) else f"({text})"
