"""Preformatted text: files, diffs with tinted lines, and source with the lines that matter."""

from __future__ import annotations

import ast
import html
import textwrap
from collections.abc import Collection, Sequence

from fusionkit.subjects.fragments import SourceFragment
from fusionkit.widgets.tables import HEADING, breakable

_PRE = (
    "margin:4px 0;padding:8px 10px;border:1px solid #8c959f;border-radius:4px;overflow-x:auto;"
    "line-height:1.35;font-size:12px"
)
_NOTE = "font-size:13px;margin:2px 0 1em"
_FOLDED = "font-size:13px;margin:2px 0"
# Tints that leave the text's own colour readable on light and dark.
_ADDED, _REMOVED, _MARKED = "#2da44e38", "#cf222e38", "#d4a72c55"
_LONGEST_WHOLE = 40  # lines of a function that are shown without leaving any out
_BEFORE_CALL, _AFTER_CALL = 8, 3


def listing(content: str, caption: str) -> str:
    """`content` as preformatted text below a caption; a unified diff has its lines tinted."""
    lines = content.rstrip("\n").splitlines()
    is_diff = any(line.startswith("@@ ") for line in lines)
    body = "\n".join(_diff_line(line) if is_diff else html.escape(line) for line in lines)
    return f'<p style="{HEADING}">{breakable(caption)}</p><pre style="{_PRE}">{body}</pre>'


def fragment_listing(item: SourceFragment) -> str:
    """Source with line numbers, its call marked; a long function is cut to what matters, the whole is folded."""
    where = f"{item.primitive}: {item.qualname} ({item.file}:{item.call_line or item.first_line})"
    title = f'<p style="{HEADING}">{breakable(where)}</p>'
    lines = item.text.splitlines()
    if not lines:
        return f"{title}<p>source not found</p>{_note(item)}"
    kept = _kept_lines(item.text, None if item.call_line is None else item.call_line - item.first_line)
    whole = ""
    if len(kept) < len(lines):
        last = item.first_line + len(lines) - 1
        whole = (
            f'<details style="{_FOLDED}"><summary>all {len(lines)} lines, {item.first_line} to {last}</summary>'
            f'<pre style="{_PRE}">{_numbered(item, lines, range(len(lines)))}</pre></details>'
        )
    return f'{title}<pre style="{_PRE}">{_numbered(item, lines, kept)}</pre>{whole}{_note(item)}'


def diff_block(content: str) -> str:
    """Lines that begin with `+` or `-` as preformatted, tinted text that wraps."""
    body = "\n".join(_diff_line(line) for line in content.rstrip("\n").splitlines())
    return f'<pre style="{_PRE};white-space:pre-wrap;overflow-wrap:anywhere">{body}</pre>'


def _diff_line(line: str) -> str:
    text = html.escape(line)
    if line.startswith(("--- ", "+++ ", "@@ ")):
        return f"<strong>{text}</strong>"
    tint = {"+": _ADDED, "-": _REMOVED}.get(line[:1])
    return f'<span style="background:{tint}">{text}</span>' if tint else text


def _kept_lines(text: str, call: int | None) -> list[int]:
    """Indexes of the lines to show: all of a short function, else no docstring, and the call's neighbours."""
    everything = list(range(len(text.splitlines())))
    if len(everything) <= _LONGEST_WHOLE:
        return everything
    signature, docstring = _signature_and_docstring(text)
    kept = [index for index in everything if index not in docstring]
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


def _numbered(item: SourceFragment, lines: Sequence[str], kept: Collection[int]) -> str:
    """The kept lines with their numbers; a line of dots for each gap, the call marked."""
    shown = []
    for index, line in enumerate(lines):
        if index in kept:
            number = item.first_line + index
            text = html.escape(f"{number:>5}  {line}")
            called = number == item.call_line
            shown.append(f'<span style="background:{_MARKED}">{text}</span>' if called else text)
        elif index == 0 or index - 1 in kept:
            shown.append("    \N{VERTICAL ELLIPSIS}")
    return "\n".join(shown)


def _note(item: SourceFragment) -> str:
    """Where the fragment's values come from, and the modules that run it."""
    values = "; ".join(
        f"{value.name}: {value.kind.replace('_', ' ')}"
        + (f" {value.dtype}{list(value.shape)}" if value.shape else "")
        for value in item.parameters
    )
    modules = ", ".join(item.modules[:6]) + (
        f" and {len(item.modules) - 6} more" if len(item.modules) > 6 else ""
    )
    return f'<p style="{_NOTE}">values: {html.escape(values or "none")}<br>run by: {breakable(modules)}</p>'
