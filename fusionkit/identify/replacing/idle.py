"""Statements in front of a run that only its original needs: they go into the else branch with it."""

from __future__ import annotations

import ast
from collections.abc import Sequence, Set

from fusionkit.identify.replacing.liveness import is_droppable, live_after
from fusionkit.identify.replacing.statements import Block, Statements, names

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_PURE = (
    ast.Name, ast.Attribute, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.cmpop, ast.boolop, ast.unaryop,
    ast.expr_context,
)  # fmt: skip


def is_pure(test: ast.expr) -> bool:
    """Whether a test can be asked twice: names, attributes and numbers, compared and joined."""
    return all(isinstance(node, _PURE) for node in ast.walk(test))


def with_idle(
    statements: Statements, block: Block, run: Sequence[ast.stmt], needed: Set[str]
) -> tuple[list[ast.stmt], tuple[str, ...]]:
    """(the run with the idle statements right in front of it, what has to be asked so that none of them raises).

    `needed`: the names that the fused branch and its condition read.
    """
    longer, asked = list(run), list[str]()
    at = next(index for index, item in enumerate(block) if item is run[0])
    for item in reversed(block[:at]):
        written = names(item)[1]
        is_idle = (
            written and not written & needed and not _is_read_outside(statements, [item, *longer], written)
        )
        test = _without_raise(item)
        if not is_idle or (test is None and not is_droppable(item)):
            break
        longer.insert(0, item)
        if test is not None:
            asked.append(test)
    return longer, tuple(asked)


def _without_raise(item: ast.stmt) -> str | None:
    """The test under which if ... elif ... else: raise does not raise, as source; None where it is no such statement."""
    tests = list[ast.expr]()
    while isinstance(item, ast.If) and all(is_droppable(inner) for inner in item.body) and is_pure(item.test):
        tests.append(item.test)
        if len(item.orelse) != 1:
            return None
        item = item.orelse[0]
    if not tests or not isinstance(item, ast.Raise):
        return None
    told = " or ".join(ast.unparse(test) for test in tests)
    return f"({told})" if len(tests) > 1 or isinstance(tests[0], ast.BoolOp) else told


def _is_read_outside(statements: Statements, run: list[ast.stmt], written: set[str]) -> bool:
    """Whether one of the names may be read after the run, or by a function inside this one."""
    inner = (node for node in ast.walk(statements.function) if isinstance(node, _FUNCTIONS))
    by_functions = {name for node in inner if node is not statements.function for name in names(node)[0]}
    return bool(written & (live_after(statements, run) | by_functions))
