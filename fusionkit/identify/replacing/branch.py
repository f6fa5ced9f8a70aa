"""A run of statements with a fused branch: `if <condition>:` the changed copy, `else:` the original, verbatim."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass

from fusionkit.identify.replacing.idle import with_idle
from fusionkit.identify.replacing.liveness import Kept, kept
from fusionkit.identify.replacing.replacement import Change, Unfit
from fusionkit.identify.replacing.statements import Statements, indented_by, names

_LONGEST = 105  # characters of a condition's line
_UNSAFE = (ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.Global, ast.Nonlocal, ast.Delete)


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines `first` to `last` (from 1) of a file, and what stands there instead; `condition` opens its branch."""

    first: int
    last: int
    lines: tuple[str, ...]
    condition: str


def grouped_changes(statements: Statements, changes: Iterable[Change]) -> list[list[Change]]:
    """Changes whose runs overlap or follow each other, together."""
    groups: list[list[Change]] = []
    for change in changes:
        merged = [change]
        for other in list(groups):
            if _meet(statements, merged, other):
                groups.remove(other)
                merged = other + merged
        groups.append(merged)
    return groups


def _meet(statements: Statements, one: list[Change], other: list[Change]) -> bool:
    spans = []
    for group in (one, other):
        block, first, last = statements.common(_nodes(group))
        spans.append((block[first].lineno, block[last].end_lineno or 0, block, first, last))
    (start, end, block, first, last), (start2, end2, block2, first2, last2) = spans
    if block is block2 and (first2 == last + 1 or first == last2 + 1):
        return True
    return start <= end2 and start2 <= end


def _nodes(changes: Iterable[Change]) -> list[ast.AST]:
    return [node for change in changes for node in (*change.texts, *change.parts, *change.before)]


def branch(statements: Statements, changes: list[Change], switch: str) -> Edit:
    """The edit that gives a run its fused branch. Raises Unfit where that cannot be done safely."""
    block, first, last = statements.common(_nodes(changes))
    run = block[first : last + 1]
    held = kept(statements, run, changes)
    texts = {id(node): text for change in changes for node, text in change.texts.items()}
    before = {id(node): lines for change in changes for node, lines in change.before.items()}
    while run and held.statements and run[0] is held.statements[0] and not _holds(run[0], texts, before):
        run = run[1:]
        held = kept(statements, run, changes)
    condition = _condition(run, changes, switch)
    _check_lines(statements, run)
    run, more = _with_idle(statements, block, run, held, condition)
    condition = " and ".join((condition, *more))
    margin, step = statements.margin(run[0]), statements.step(run[0])
    texts = {name: indented_by(text, step) for name, text in texts.items()}
    before = {name: [indented_by(line, step) for line in lines] for name, lines in before.items()}
    fused = [
        f"{step}{line}\n" if line.strip() else "\n"
        for item in held.statements
        for line in _written(statements, item, texts, before)
    ]
    fused += [f"{margin}{step}{name} = None\n" for name in held.nothing]
    if not fused:
        raise Unfit("nothing of the code is left to call the fused op")
    start, end = _first_line(run[0]), run[-1].end_lineno or run[-1].lineno
    original = [step + line if line.strip() else line for line in statements.lines[start - 1 : end]]
    lines = (*_asked(condition, margin, step), *fused, f"{margin}else:\n", *original)
    return Edit(start, end, lines, condition)


def _with_idle(
    statements: Statements, block: list[ast.stmt], run: list[ast.stmt], held: Kept, condition: str
) -> tuple[list[ast.stmt], tuple[str, ...]]:
    """The run with what only its original needs, where that can be indented; else the run as it is."""
    needed = held.read | names(ast.parse(condition, mode="eval"))[0]
    longer, more = with_idle(statements, block, run, needed)
    try:
        _check_lines(statements, longer)
    except Unfit:
        return run, ()
    return longer, more


def _asked(condition: str, margin: str, step: str) -> list[str]:
    """The line that opens the branch, over several lines where it is long."""
    line = f"{margin}if {condition}:\n"
    if len(line) <= _LONGEST:
        return [line]
    first, *more = condition.split(" and ")
    inner = [f"{margin}{step}{first}\n", *(f"{margin}{step}and {text}\n" for text in more)]
    return [f"{margin}if (\n", *inner, f"{margin}):\n"]


def _holds(item: ast.stmt, texts: dict[int, str], before: dict[int, list[str]]) -> bool:
    return any(id(node) in texts or id(node) in before for node in (item, *ast.walk(item)))


def _condition(run: list[ast.stmt], changes: list[Change], switch: str) -> str:
    """The switch and what the changes ask; what they ask of has to be there before the branch, and stay."""
    told: dict[str, None] = {}
    for change in changes:
        first = min(getattr(node, "lineno", 0) for node in (*change.texts, *change.before))
        written = {name for item in run if (item.end_lineno or 0) < first for name in names(item)[1]}
        for text in change.conditions:
            late = (names(ast.parse(text, mode="eval"))[0] & written) - change.at_start
            if late:
                raise Unfit(f"the condition needs {' and '.join(sorted(late))} before it is there")
            told[text] = None
    return " and ".join((switch, *told))


def _check_lines(statements: Statements, run: list[ast.stmt]) -> None:
    """Refuse what would not survive being indented or copied."""
    for item in run:
        for node in ast.walk(item):
            if isinstance(node, _UNSAFE):
                raise Unfit(f"the code holds {type(node).__name__}, which a second branch would repeat")
    start, end = _first_line(run[0]), run[-1].end_lineno or 0
    if statements.lines[start - 1][: run[0].col_offset].strip():
        raise Unfit("the statement shares its line with another one")
    rest = statements.lines[end - 1].encode()[run[-1].end_col_offset or 0 :].decode().strip()
    if rest and not rest.startswith("#"):
        raise Unfit("the statement shares its line with another one")
    width = run[0].col_offset
    text = "".join(
        line[width:] if line[:width].isspace() else line for line in statements.lines[start - 1 : end]
    )
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, IndentationError, SyntaxError) as error:
        raise Unfit("the code cannot be taken apart into tokens") from error
    for token in tokens:
        if "STRING" in tokenize.tok_name[token.type] and token.start[0] != token.end[0]:
            raise Unfit("a string in the code runs over several lines")


def _first_line(item: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(item, "decorator_list", [])
    return min([item.lineno, *(node.lineno for node in decorators)])


def _written(
    statements: Statements, item: ast.stmt, texts: dict[int, str], before: dict[int, list[str]]
) -> list[str]:
    """The lines of a statement in the fused branch, before they are moved one step further in."""
    margin = statements.margin(item)
    ahead = [line for node in ast.walk(item) for line in before.get(id(node), ())]
    if any(id(node) in before for inner in _inner(item) for node in ast.walk(inner)):
        raise Unfit("lines would have to stand before a statement of an inner block")
    text = statements.rewritten(item, texts, margin)
    if not text:
        return []
    return [*(f"{margin}{line}" for line in ahead), *f"{margin}{text}".split("\n")]


def _inner(item: ast.stmt) -> list[ast.stmt]:
    return [node for node in ast.walk(item) if isinstance(node, ast.stmt) and node is not item]
