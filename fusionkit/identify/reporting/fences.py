"""Text in Markdown that stays text: fences longer than any inside, code spans, cells of tables."""

from __future__ import annotations

import re

from fusionkit.visible import visible

_TICKS = re.compile(r"`+")


def fenced(text: str, language: str = "") -> str:
    """A code block of `text`, whatever it contains: the fence is longer than any run of backticks in it."""
    fence = "`" * max(3, _longest(text) + 1)
    body = visible(text.replace("\r\n", "\n").rstrip("\n"))
    return f"{fence}{language}\n{body}\n{fence}"


def span(text: str) -> str:
    """A code span of one line; nothing for no text."""
    line = one_line(text)
    if not line:
        return ""
    ticks = "`" * (_longest(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def cell(text: str) -> str:
    """A cell of a table: one line, its bars escaped."""
    return one_line(text).replace("|", "\\|")


def one_line(text: str) -> str:
    """`text` on one line, control characters written out."""
    return visible(" ".join(text.split()))


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table; cells are taken as Markdown, with bars escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell(item) for item in line) + " |" for line in lines)


def _longest(text: str) -> int:
    return max((len(run) for run in _TICKS.findall(text)), default=0)
