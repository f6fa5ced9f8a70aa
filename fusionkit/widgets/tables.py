"""Static HTML tables of result rows: inline styles only, every text escaped, no script, nothing to load."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from fusionkit.errors import MisuseError

NOTHING_TO_SHOW = "nothing to show"

# Background of a badge; all carry white text at a contrast of at least 4.5 to 1.
_GREEN, _RED, _AMBER, _GREY, _BLUE = "#1a7f37", "#cf222e", "#8a5a00", "#59636e", "#0969da"
_BADGES = {
    "PASS": _GREEN,
    "FAIL": _RED,
    "INCONCLUSIVE": _AMBER,
    "hit": _GREEN,
    "miss": _RED,
    "skipped": _AMBER,
    "already_fused": _BLUE,
}

_REGION = "overflow-x:auto;max-width:100%;margin:0.5em 0"
_TABLE = "border-collapse:collapse;table-layout:auto;font-size:13px;line-height:1.4;margin:0"
HEADING = "font-size:13px;font-weight:bold;margin:0.5em 0 4px"
_CAPTION = "caption-side:top;text-align:left;font-weight:bold;padding:4px 0"
_CELL = "border:1px solid #8c959f;padding:3px 8px;vertical-align:top;max-width:36em"
_TEXT = f"{_CELL};text-align:left;white-space:normal;overflow-wrap:break-word"
_LONG_TEXT = f"{_CELL};text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:12em"
_NUMBER = f"{_CELL};text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums"
_HEAD = f"{_CELL};white-space:nowrap;font-weight:bold;background:#8c959f33"

# Names such as a.module.path, a/file.py:12 or ALongClassName may break after a part, into pieces of some length.
_NAME = re.compile(r"[A-Za-z0-9_./:-]{25,}")
_PIECE = re.compile(
    r"""(?:[\w./:-]{9,22}?[./]           # best after a dot or slash
         |[\w./:-]{9,22}?[a-z](?=[A-Z])  # or before a capital
         |[\w./:-]{15,}?_)               # else after an underscore
        (?=[\w./:-]{10,})""",
    re.VERBOSE | re.ASCII,
)
_SMALL_NUMBER = re.compile(r"\b[0-9.]+e-[0-9]+\b")
_GAP = re.compile(r"\s|<wbr>")
_LONGEST_WORD = 40  # characters; a cell with a longer one may break anywhere


def html_table(
    rows: Sequence[Mapping[str, object]],
    *,
    columns: Sequence[str] | None = None,
    caption: str | None = None,
    verdict_column: str = "verdict",
    empty: str = NOTHING_TO_SHOW,
    merge: Sequence[str] = (),
) -> str:
    """Render `rows` as an HTML table that needs neither script nor network.

    Args:
        rows: one mapping per row; a column that a row lacks, or that is None, is shown as a dash. Lists are
            shown one item a line.
        columns: the columns and their order; default: all keys, in the order in which they first appear.
        caption: a line above the table.
        verdict_column: the column whose values become coloured badges, besides the column `status`.
        empty: what to say where there are no rows: why there are none.
        merge: leading columns in which one cell stands for equal neighbours.

    Returns:
        HTML; with no rows, the caption and `empty`.
    """
    title = html.escape(caption) if caption else ""
    if not rows:
        return nothing(empty, caption)
    names = list(columns) if columns is not None else column_names(rows)
    numeric = {name for name in names if _is_numeric(row.get(name) for row in rows)}
    head = "".join(_head(name, name in numeric) for name in names)
    spans = _spans(rows, [name for name in names if name in merge])
    badges = (verdict_column, "status")
    body = "".join(
        "<tr>"
        + "".join(
            _cell(row.get(name), name in badges, name in numeric, span)
            for name in names
            if (span := spans.get((index, name), 1))
        )
        + "</tr>\n"
        for index, row in enumerate(rows)
    )
    label = f'<caption style="{_CAPTION}">{title}</caption>' if title else ""
    return (
        f'<div tabindex="0" role="region" aria-label="{title or "table"}" style="{_REGION}">'
        f'<table style="{_TABLE}">{label}<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'
    )


def nothing(why: str, caption: str | None = None) -> str:
    """The caption, and in place of a table or picture the reason why there is none."""
    title = f'<p style="{HEADING}">{html.escape(caption)}</p>' if caption else ""
    return f'{title}<p style="font-style:italic;margin:0 0 0.5em">{html.escape(why)}</p>'


def column_names(rows: Iterable[Mapping[str, object]]) -> list[str]:
    """Return all keys of `rows` in the order in which they first appear."""
    return list(dict.fromkeys(str(key) for row in rows for key in row))


def show(markup: str, metadata: Mapping[str, Any] | None = None) -> Any:
    """Wrap HTML or SVG text so that a notebook renders it: an `IPython.display.HTML`.

    `metadata` goes into the output of the executed notebook, for whoever reads that. Raises MisuseError where
    IPython is not installed.
    """
    try:
        from IPython import display
    except ImportError as error:
        raise MisuseError("show() needs IPython: pip install 'fusionkit[notebooks]'") from error
    html_class: Any = display.HTML
    return html_class(markup, metadata=dict(metadata) if metadata else None)


def plain_text(value: object) -> str:
    """Return the text shown for a value: floats with six significant digits, a dash for None."""
    if value is None:
        return "\N{EN DASH}"
    if isinstance(value, bool | Integral) or not isinstance(value, Real):
        return str(value)
    number = float(value)
    return f"{number:.6g}" if math.isfinite(number) else str(number)


def breakable(text: str) -> str:
    """Escape `text` for HTML; long names in it may break between their parts, 1e-06 nowhere."""
    named = _NAME.sub(lambda name: _PIECE.sub(r"\g<0><wbr>", name[0]), html.escape(text))
    return _SMALL_NUMBER.sub(r'<span style="white-space:nowrap">\g<0></span>', named)


def badge(text: str) -> str:
    """A coloured badge for a verdict or a site's status; grey for anything else."""
    return (
        f'<span style="background:{_BADGES.get(text, _GREY)};color:#ffffff;border-radius:3px;padding:1px 6px;'
        f'font-weight:bold;white-space:nowrap">{html.escape(text)}</span>'
    )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_numeric(values: Iterable[object]) -> bool:
    """Whether a column holds numbers and nothing else, gaps aside."""
    present = [value for value in values if value is not None]
    return bool(present) and all(map(_is_number, present))


def _head(name: str, numeric: bool) -> str:
    return f'<th scope="col" style="{_HEAD};text-align:{"right" if numeric else "left"}">{html.escape(name)}</th>'


def _spans(rows: Sequence[Mapping[str, object]], merged: Sequence[str]) -> dict[tuple[int, str], int]:
    """Rows that the cell at (row, column) covers; 0 where the cell above covers it.

    A column's run ends where that of a column to its left does.
    """
    spans: dict[tuple[int, str], int] = {}
    for depth, name in enumerate(merged, start=1):
        keys = [[plain_text(row.get(column)) for column in merged[:depth]] for row in rows]
        start = 0
        for index in range(len(rows)):
            if keys[index] != keys[start]:
                start = index
            spans[index, name] = 0
            spans[start, name] = index - start + 1
    return spans


def _cell(value: object, as_badge: bool, numeric: bool, span: int) -> str:
    over = f' rowspan="{span}"' if span > 1 else ""
    if _is_number(value):
        return f'<td{over} style="{_NUMBER}">{html.escape(plain_text(value))}</td>'
    items = [plain_text(item) for item in value] if isinstance(value, list | tuple) else [plain_text(value)]
    inner = "<br>".join(map(badge if as_badge and value is not None else breakable, items))
    words = [word for item in items for word in _GAP.split(breakable(item))]
    style = _LONG_TEXT if any(len(word) > _LONGEST_WORD for word in words) else _TEXT
    if value is None and numeric:
        style = _NUMBER
    return f'<td{over} style="{style}">{inner}</td>'
