"""Holds a rewritten text against the original: without what was added, both are the same program."""

from __future__ import annotations

import ast

from fusionkit.identify.replacing.branch import Edit
from fusionkit.identify.replacing.replacement import Unfit
from fusionkit.identify.source.files import SourceFile


def check_original(file: SourceFile, new_text: str, edits: list[Edit], after: int, head: list[str]) -> None:
    """Raise Unfit if the new text does not parse, or is not the original once its branches and head are taken out."""
    try:
        tree = ast.parse(new_text)
    except SyntaxError as error:
        raise Unfit(f"the replacement would not parse: line {error.lineno}: {error.msg}") from error
    shift, at = len(head), set[int]()
    for edit in sorted(edits, key=lambda item: item.first):
        at.add(edit.first + shift)
        shift += len(edit.lines) - (edit.last - edit.first + 1)
    tree.body = [node for node in tree.body if not after < node.lineno <= after + len(head)]
    if len(tree.body) != len(file.tree.body):
        raise Unfit("the replacement would change the statements of the module")
    remove = _Without(at)
    for old, new in zip(file.tree.body, tree.body, strict=True):
        if _is_edited(old, edits) and ast.dump(remove.visit(new)) != ast.dump(old):
            raise Unfit("the original code would not survive as the else branch")


def _is_edited(node: ast.stmt, edits: list[Edit]) -> bool:
    """Whether an edit lies in a top-level statement; the lines of all others are the same bytes."""
    return any(node.lineno <= edit.last and edit.first <= (node.end_lineno or node.lineno) for edit in edits)


class _Without(ast.NodeTransformer):
    """Puts the else branch in the place of each added `if`."""

    def __init__(self, lines: set[int]) -> None:
        self.lines = lines

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """The original statements of an added branch; any other one as it is."""
        self.generic_visit(node)
        return node.orelse if node.lineno in self.lines else node
