"""Where the expressions of a function stand: their statement, its block, and the text that they are written as."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from fusionkit.identify.replacing.replacement import Unfit
from fusionkit.identify.source.evaluate import FunctionNode
from fusionkit.identify.source.files import source_lines

Block = list[ast.stmt]
STEP = "    "  # by which new texts are indented until they are written with the file's own step
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Statements:
    """The statements of one function, and the file's text under them."""

    def __init__(self, function: FunctionNode, text: str) -> None:
        self.function = function
        self.lines = source_lines(text)
        self._encoded = [line.encode() for line in self.lines]
        self._parents: dict[int, ast.AST] = {}
        self._blocks: dict[int, Block] = {}
        for parent in ast.walk(function):
            for child in ast.iter_child_nodes(parent):
                self._parents[id(child)] = parent
            for _, held in ast.iter_fields(parent):
                if isinstance(held, list) and held and isinstance(held[0], ast.stmt):
                    self._blocks.update((id(item), held) for item in held)

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node that `node` is a part of; None at the function itself."""
        return self._parents.get(id(node))

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """What `node` stands in, from within, the function last. An augmented assignment's sum stands for itself."""
        if id(node) not in self._parents and node is not self.function:
            node = self.augmented(node)
            yield node
        while (held := self.parent(node)) is not None:
            yield held
            node = held

    def augmented(self, node: ast.AST) -> ast.AugAssign:
        """The augmented assignment that `node` was made of; the flow reads x += y as x + y."""
        place = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
        for item in ast.walk(self.function):
            if isinstance(item, ast.AugAssign) and (item.lineno, item.col_offset) == place:
                return item
        raise Unfit("the code stands outside of the function")

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that `node` stands in."""
        if isinstance(node, ast.stmt) and id(node) in self._blocks:
            return node
        for item in self.above(node):
            if isinstance(item, ast.stmt) and id(item) in self._blocks:
                return item
        raise Unfit("the code stands outside of the function's body")

    def block(self, statement: ast.stmt) -> Block:
        """The block that a statement stands in."""
        return self._blocks[id(statement)]

    def chain(self, node: ast.AST) -> list[ast.stmt]:
        """The statements around `node`, the innermost first, up to the function's own block."""
        first = self.statement(node)
        around = [
            item for item in self.above(first) if isinstance(item, ast.stmt) and id(item) in self._blocks
        ]
        return [first, *around]

    def common(self, nodes: Sequence[ast.AST]) -> tuple[Block, int, int]:
        """The smallest run of whole statements of one block that holds all nodes: (block, first, last)."""
        chains = [self.chain(node) for node in nodes]
        for candidate in chains[0]:
            block = self.block(candidate)
            places = [
                next((i for item in chain for i, own in enumerate(block) if own is item), None)
                for chain in chains
            ]
            told = [place for place in places if place is not None]
            if len(told) == len(chains):
                return block, min(told), max(told)
        raise Unfit("the code stands in several functions")

    def margin(self, item: ast.AST) -> str:
        """The blanks or tabs that a statement is indented with."""
        line = self._encoded[getattr(item, "lineno", 1) - 1]
        before = line[: getattr(item, "col_offset", 0)].decode()
        return before if not before.strip() else before[: len(before) - len(before.lstrip(" \t"))]

    def step(self, item: ast.stmt) -> str:
        """What the block of a statement is indented with beyond the statement around it."""
        around = self.parent(item)
        while not isinstance(around, (ast.stmt, type(None))):
            around = self.parent(around)
        outer, inner = self.margin(around or self.function), self.margin(item)
        return inner.removeprefix(outer) or STEP

    def source(self, node: ast.AST) -> str:
        """The text of an expression on one line, as it is written where it stands on one."""
        if not isinstance(node, ast.expr):
            raise Unfit("an operand is no expression")
        held = self.cut(node)
        return held if "\n" not in held else ast.unparse(node)

    def cut(self, node: ast.AST) -> str:
        """The text of a node as it stands."""
        start, end = self.span(node)
        return self.between(start, end)

    def span(self, node: ast.AST) -> tuple[tuple[int, int], tuple[int, int]]:
        """(line from 0, byte) of the start and of the end of a node."""
        end_line, end = getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0)
        return (getattr(node, "lineno", 1) - 1, getattr(node, "col_offset", 0)), (end_line - 1, end)

    def between(self, start: tuple[int, int], end: tuple[int, int]) -> str:
        """The text from one place to another."""
        if start[0] == end[0]:
            return self._encoded[start[0]][start[1] : end[1]].decode()
        middle = self._encoded[start[0] + 1 : end[0]]
        return b"".join(
            (self._encoded[start[0]][start[1] :], *middle, self._encoded[end[0]][: end[1]])
        ).decode()

    def rewritten(self, node: ast.AST, texts: dict[int, str], margin: str) -> str:
        """The text of a node with other texts in it, by id of the nodes they replace; `margin` indents their lines."""
        if id(node) in texts:
            return texts[id(node)].replace("\n", f"\n{margin}")
        start, end = self.span(node)
        changed: list[tuple[tuple[int, int], tuple[int, int], str]] = []
        front = list(ast.iter_child_nodes(node))
        while front:
            inner = front.pop()
            if id(inner) in texts:
                own = self.margin(inner) if isinstance(inner, ast.stmt) else margin
                changed.append((*self.span(inner), texts[id(inner)].replace("\n", f"\n{own}")))
            else:
                front += ast.iter_child_nodes(inner)
        parts, at = [], start
        for begin, stop, text in sorted(changed):
            parts += [self.between(at, begin), text]
            at = stop
        return "".join((*parts, self.between(at, end)))


def indented_by(text: str, step: str, before: str = STEP) -> str:
    """A text whose lines are indented by `before`, with `step` in its place."""
    return "\n".join(_moved(line, step, before) for line in text.split("\n"))


def _moved(line: str, step: str, before: str) -> str:
    deep = 0
    while line.startswith(before, deep * len(before)):
        deep += 1
    return step * deep + line[deep * len(before) :]


def names(node: ast.AST) -> tuple[set[str], set[str]]:
    """(names read, names written) in a statement or expression; what an inner function reads counts as read."""
    read, written = set[str](), set[str]()
    for item in ast.walk(node):
        if isinstance(item, ast.Name):
            (read if isinstance(item.ctx, ast.Load) else written).add(item.id)
        elif isinstance(item, _SCOPES[:2]):
            written.add(item.name)
        if isinstance(item, ast.AugAssign) and isinstance(item.target, ast.Name):
            read.add(item.target.id)
    return read, written
