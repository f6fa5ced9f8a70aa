"""One place of a site, as the builders of replacements take it: its value, and the text around it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from fusionkit.identify.replacing.operands import Start, grouped
from fusionkit.identify.replacing.replacement import Unfit
from fusionkit.identify.replacing.statements import Statements, names
from fusionkit.identify.rules.unit import Unit
from fusionkit.identify.source.values import Value

_LONGEST = 72  # characters of a call that stays on one line


@dataclass(frozen=True, slots=True)
class Place:
    """The value at which the math of an op ends, in its function."""

    unit: Unit
    statements: Statements
    value: Value
    hazards: frozenset[str]

    def put(self, node: ast.AST | None, text: str) -> dict[ast.AST, str]:
        """What to change so that `text` stands where `node` does; x += y becomes x = text."""
        if node is None:
            raise Unfit("a part of the code stands nowhere")
        if self.statements.parent(node) is None:
            held = self.statements.augmented(node)
            return {held: f"{ast.unparse(held.target)} = {text}"}
        return {node: text}

    def start(self, parts: Sequence[ast.AST]) -> Start:
        """The point before the statements that `parts` stand in."""
        block, first, _ = self.statements.common(parts)
        return Start(self.unit, self.statements, block, first)

    def text(self, node: ast.AST | None) -> str:
        """The text of an expression where it stands."""
        if node is None:
            raise Unfit("an operand stands nowhere")
        return self.statements.source(node)

    def tight(self, node: ast.AST | None) -> str:
        """The text of an expression, such that a method can be called on it."""
        return grouped(self.text(node), node) if node is not None else self.text(node)

    def fresh(self, name: str) -> str:
        """A name that the function does not use."""
        read, written = names(self.unit.node)
        taken = read | written | set(self.unit.flow.parameters)
        while name in taken:
            name = f"fused_{name}"
        return name

    def users(self, value: Value) -> list[Value]:
        """The values that take `value`, each place of the source once."""
        found: dict[int, Value] = {}
        for user in self.unit.users(value):
            if user.op != "either" or self._is_read(user):
                found.setdefault(id(user.node), user)
        return list(found.values())

    def _is_read(self, joined: Value) -> bool:
        """Whether a name that branches or turns of a loop join is read after them."""
        return any(user.op != "either" or self._is_read(user) for user in self.unit.users(joined))

    def in_function(self, name: str) -> str:
        """torch, as this file calls it, with `name` behind: torch.x."""
        told = next((held for held, module in self.unit.file.modules.items() if module == "torch"), "")
        if not told:
            raise Unfit("the file does not import torch")
        return f"{told}.{name}"


def factor_nodes(value: Value) -> tuple[ast.expr, ast.expr]:
    """The expressions of the two operands of a sum, difference or product, in order."""
    node = value.node
    if isinstance(node, ast.BinOp):
        return node.left, node.right
    if isinstance(node, ast.Call):
        method = [node.func.value] if value.name == "method" and isinstance(node.func, ast.Attribute) else []
        operands = [*method, *node.args]
        if len(operands) == 2:
            return operands[0], operands[1]
    raise Unfit("an operation is not written with two operands")


def call(name: str, *arguments: str) -> str:
    """A call's text, over several lines where it is long."""
    line = f"{name}({', '.join(arguments)})"
    if len(line) <= _LONGEST:
        return line
    return "\n".join(
        (f"{name}(", *(f"    {item.replace(chr(10), chr(10) + '    ')}," for item in arguments), ")")
    )
