"""Preformatted text: files, diffs with tinted lines, and the relevant lines of source."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Collection, Sequence

from fusionkit.subjects.fragments import SourceFragment
from fusionkit.templates import render

_TEMPLATE = "widgets/templates/listings.html"
_LONGEST_WHOLE = 40  # lines of a function that are shown without leaving any out
_BEFORE_CALL, _AFTER_CALL = 8, 3


Line = tuple[str, str]  # its kind ("" for plain text) and its text


def listing(content: str, caption: str) -> str:
    """`content` as preformatted text below a caption; a unified diff has its lines tinted."""
    lines = content.rstrip("\n").splitlines()
    is_diff = any(line.startswith("@@ ") for line in lines)
    return render(
        _TEMPLATE, "listing", caption, [_diff_line(line) if is_diff else ("", line) for line in lines]
    )


def fragment_listing(item: SourceFragment) -> str:
    """Source with line numbers, its call marked; a long function is cut to the relevant lines, the whole is folded."""
    title = f"{item.primitive}: {item.qualname} ({item.file}:{item.call_line or item.first_line})"
    lines = item.text.splitlines()
    kept = _kept_lines(item.text, None if item.call_line is None else item.call_line - item.first_line)
    whole = _numbered(item, lines, range(len(lines))) if len(kept) < len(lines) else []
    span = f"{len(lines)} lines, {item.first_line} to {item.first_line + len(lines) - 1}"
    return render(_TEMPLATE, "fragment", title, _numbered(item, lines, kept), whole, span, *_origin(item))


def diff_block(content: str) -> str:
    """Lines that begin with `+` or `-` as preformatted, tinted text that wraps."""
    return render(_TEMPLATE, "pre", [_diff_line(line) for line in content.rstrip("\n").splitlines()], True)


def _diff_line(line: str) -> Line:
    if line.startswith(("--- ", "+++ ", "@@ ")):
        return "head", line
    return {"+": "added", "-": "removed"}.get(line[:1], ""), line


def _kept_lines(text: str, call: int | None) -> list[int]:
    """Indexes of the lines to show: all of a short function, else no docstring, and the call's neighbours."""
    every_line = list(range(len(text.splitlines())))
    if len(every_line) <= _LONGEST_WHOLE:
        return every_line
    signature, docstring = _signature_and_docstring(text)
    kept = [index for index in every_line if index not in docstring]
    if call is None:
        return kept
    near = range(call - _BEFORE_CALL, call + _AFTER_CALL + 1)
    return [index for index in kept if index in signature or index in near]


def _signature_and_docstring(text: str) -> tuple[range, range]:
    """Line ranges of a function's signature and docstring, from 0; of anything else, nothing."""
    try:
        (definition,) = ast.parse(textwrap.dedent(text)).body
    except (SyntaxError, ValueError):
        return range(0), range(0)
    if not isinstance(definition, ast.FunctionDef):
        return range(0), range(0)
    first = definition.body[0]
    has_docstring = ast.get_docstring(definition, clean=False) is not None
    docstring = range(first.lineno - 1, first.end_lineno or first.lineno) if has_docstring else range(0)
    return range(first.lineno - 1), docstring


def _numbered(item: SourceFragment, lines: Sequence[str], kept: Collection[int]) -> list[Line]:
    """The kept lines with their numbers; a line of dots for each gap, the call marked."""
    shown: list[Line] = []
    for index, line in enumerate(lines):
        if index in kept:
            number = item.first_line + index
            shown.append(("called" if number == item.call_line else "", f"{number:>5}  {line}"))
        elif index == 0 or index - 1 in kept:
            shown.append(("", "    \N{VERTICAL ELLIPSIS}"))
    return shown


def _origin(item: SourceFragment) -> tuple[str, str]:
    """The parameters of the fragment with their kinds, and the modules that run it."""
    values = "; ".join(
        f"{value.name}: {value.kind.replace('_', ' ')}"
        + (f" {value.dtype}{list(value.shape)}" if value.shape else "")
        for value in item.parameters
    )
    more = len(item.modules) - 6
    return values, ", ".join(item.modules[:6]) + (f" and {more} more" if more > 0 else "")
