"""Which statements of a fused branch are still needed: those whose names nobody reads are left out."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from fusionkit.identify.replacing.replacement import Change, Unfit
from fusionkit.identify.replacing.statements import Statements, names

_FRESH = ("matmul", "bmm", "baddbmm", "einsum")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass(frozen=True, slots=True)
class Kept:
    """The statements that the fused branch keeps, names that become None in it, and every name that it reads."""

    statements: tuple[ast.stmt, ...]
    nothing: tuple[str, ...]
    read: frozenset[str]


def kept(statements: Statements, run: list[ast.stmt], changes: Iterable[Change]) -> Kept:
    """What of a run the fused branch needs. Raises Unfit where a name would have to hold two values at once."""
    changes = list(changes)
    own = _own(run)
    found, is_whole = _kept(statements, run, changes, own)
    return found if is_whole else _kept(statements, run, changes, frozenset())[0]


def _kept(
    statements: Statements, run: list[ast.stmt], changes: list[Change], own: frozenset[str]
) -> tuple[Kept, bool]:
    """(what is kept, whether it reads no name of `own` whose change in place was left out)."""
    texts = {id(node): text for change in changes for node, text in change.texts.items()}
    before = {id(node): lines for change in changes for node, lines in change.before.items()}
    at_start = frozenset().union(*(change.at_start for change in changes))
    after = live_after(statements, run)
    nothing = frozenset().union(*(change.nothing for change in changes)) & after
    needed, wanted_at_start = set(after - nothing), set[str]()
    held: list[ast.stmt] = []
    passed, still = set[str](), set[str]()
    for item in reversed(run):
        changed = _changed_in_place(item)
        if changed in own - needed:
            passed.add(changed)
            continue
        read, written = _names_of(item, texts, before)
        inserted = any(id(node) in texts or id(node) in before for node in ast.walk(item))
        if is_droppable(item) and not written & needed and not (inserted and not written):
            continue
        if written & wanted_at_start:
            raise Unfit(
                f"{' and '.join(sorted(written & wanted_at_start))} changes before the fused op is called"
            )
        if id(item) in texts or isinstance(item, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            needed -= written
        still |= read
        needed |= read - (at_start if inserted else frozenset())
        wanted_at_start |= (read & at_start) if inserted else set()
        held.append(item)
    return Kept(tuple(reversed(held)), tuple(sorted(nothing)), frozenset(still)), not passed & still


def _changed_in_place(item: ast.stmt) -> str:
    """x of the statement x.masked_fill_(...), "" for any other."""
    made = item.value if isinstance(item, ast.Expr) else None
    if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Attribute):
        return ""
    is_own = made.func.attr.endswith("_") and not made.func.attr.endswith("__")
    return made.func.value.id if is_own and isinstance(made.func.value, ast.Name) else ""


def _own(run: list[ast.stmt]) -> frozenset[str]:
    """Names that a run binds to tensors that nothing else holds: to sums, products, and results of such."""
    found = set[str]()
    for item in run:
        if isinstance(item, ast.Assign) and len(item.targets) == 1 and isinstance(item.targets[0], ast.Name):
            made = item.value
            called = ast.unparse(made.func).rpartition(".")[2] if isinstance(made, ast.Call) else ""
            name = item.targets[0].id
            (found.add if isinstance(made, ast.BinOp) or called in _FRESH else found.discard)(name)
    return frozenset(found)


def _names_of(
    item: ast.stmt, texts: dict[int, str], before: dict[int, list[str]]
) -> tuple[set[str], set[str]]:
    """(read, written) of a statement as the fused branch has it."""
    if id(item) in texts:
        read, written = _in_order(ast.parse(texts[id(item)]).body)
    else:
        read, written = set[str](), set[str]()
        front: list[ast.AST] = [item]
        while front:
            node = front.pop()
            if id(node) in texts:
                read |= names(ast.parse(texts[id(node)].strip(), mode="eval"))[0]
            elif isinstance(node, ast.Name):
                (read if isinstance(node.ctx, ast.Load) else written).add(node.id)
                continue
            else:
                front += ast.iter_child_nodes(node)
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                read.add(node.target.id)
    for node in ast.walk(item):
        if id(node) in before:
            read |= _in_order(ast.parse("\n".join(before[id(node)])).body)[0]
    return read, written


def _in_order(body: list[ast.stmt]) -> tuple[set[str], set[str]]:
    """(names read before they are written there, names written) of statements in a row."""
    read, written = set[str](), set[str]()
    for item in body:
        own = names(item)
        read |= own[0] - written
        written |= own[1]
    return read, written


def is_droppable(item: ast.stmt) -> bool:
    """Whether a statement does nothing but write plain names."""
    if isinstance(item, ast.Assign):
        return all(_is_plain(target) for target in item.targets)
    if isinstance(item, (ast.AnnAssign, ast.AugAssign)):
        return isinstance(item.target, ast.Name)
    if isinstance(item, ast.If):
        return all(is_droppable(inner) for inner in (*item.body, *item.orelse))
    if isinstance(item, ast.With):
        return all(is_droppable(inner) for inner in item.body)
    return False


def _is_plain(target: ast.expr) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)):
        return all(_is_plain(item) for item in target.elts)
    return isinstance(target, ast.Name)


def live_after(statements: Statements, run: list[ast.stmt]) -> frozenset[str]:
    """Names that may be read after a run: further down, or anywhere in a loop around it."""
    last = run[-1]
    if isinstance(last, (ast.Return, ast.Raise)):
        return frozenset()
    loop = next((item for item in statements.above(last) if isinstance(item, _LOOPS)), None)
    inside = {id(node) for item in run for node in ast.walk(item)}
    inside |= set() if loop is not None else _other_branches(statements, last)
    end = (last.end_lineno or 0, last.end_col_offset or 0)
    found = set()
    for node in ast.walk(statements.function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in inside:
            in_loop = loop is not None and loop.lineno <= node.lineno
            if in_loop or (node.lineno, node.col_offset) > end:
                found.add(node.id)
    return frozenset(found)


def _other_branches(statements: Statements, item: ast.stmt) -> set[int]:
    """The nodes of branches that do not run where the one of `item` does."""
    found, inner = set[int](), item
    for around in statements.above(item):
        if isinstance(around, ast.If) and (side := _other_side(around, inner)):
            found |= {id(node) for other in side for node in ast.walk(other)}
        if isinstance(around, ast.stmt):
            inner = around
    return found


def _other_side(around: ast.If, inner: ast.stmt) -> list[ast.stmt]:
    return around.orelse if any(own is inner for own in around.body) else around.body
