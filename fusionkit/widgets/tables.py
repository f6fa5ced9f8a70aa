"""Static HTML tables of result rows: inline styles only, every text escaped, no script, nothing to load."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from fusionkit.errors import MisuseError
from fusionkit.templates import breakable, render

TEMPLATE = "widgets/templates/tables.html"
NOTHING_TO_SHOW = "nothing to show"

_GAP = re.compile(r"\s|<wbr>")
_LONGEST_WORD = 40  # characters; a cell with a longer one may break anywhere


@dataclass(frozen=True, slots=True)
class _Cell:
    """What one cell shows, a line each; `span`: the rows that it covers; `style`: a key of the template's styles."""

    texts: tuple[str, ...]
    span: int
    style: str
    badge: bool


def html_table(
    rows: Sequence[Mapping[str, object]],
    *,
    columns: Sequence[str] | None = None,
    caption: str | None = None,
    verdict_column: str = "verdict",
    empty: str = NOTHING_TO_SHOW,
    merge: Sequence[str] = (),
) -> str:
    """Render `rows` as an HTML table without script; with no rows, the caption and `empty`, the reason for that.

    A column that a row lacks, or that is None, is shown as a dash, a list one item a line. `columns`: by default all
    keys in the order in which they first appear. The values of `verdict_column` and of the column `status` become
    coloured badges. `merge`: leading columns in which one cell covers equal neighbours.
    """
    if not rows:
        return nothing(empty, caption)
    names = list(columns) if columns is not None else column_names(rows)
    numeric = {name for name in names if _is_numeric(row.get(name) for row in rows)}
    spans = _spans(rows, [name for name in names if name in merge])
    badges = (verdict_column, "status")
    body = [
        [
            _cell(row.get(name), name in badges, name in numeric, span)
            for name in names
            if (span := spans.get((index, name), 1))
        ]
        for index, row in enumerate(rows)
    ]
    return render(TEMPLATE, "table", caption, [(name, name in numeric) for name in names], body)


def heading(text: str) -> str:
    """A line above a piece."""
    return render(TEMPLATE, "heading", text)


def nothing(why: str, caption: str | None = None) -> str:
    """The caption, and in place of a table or picture the reason why there is none."""
    return render(TEMPLATE, "nothing", why, caption)


def column_names(rows: Iterable[Mapping[str, object]]) -> list[str]:
    """Return all keys of `rows` in the order in which they first appear."""
    return list(dict.fromkeys(str(key) for row in rows for key in row))


def show(markup: str, metadata: Mapping[str, Any] | None = None) -> Any:
    """Wrap HTML or SVG text so that a notebook renders it: an `IPython.display.HTML`.

    `metadata` goes into the output of the executed notebook. Raises MisuseError where
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


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_numeric(values: Iterable[object]) -> bool:
    """Whether every value of a column is a number or None, and not all are None."""
    present = [value for value in values if value is not None]
    return bool(present) and all(map(_is_number, present))


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


def _cell(value: object, as_badge: bool, numeric: bool, span: int) -> _Cell:
    items = value if isinstance(value, list | tuple) else (value,)
    texts = tuple(plain_text(item) for item in items)
    if _is_number(value) or (value is None and numeric):
        return _Cell(texts, span, "number", False)
    words = [word for text in texts for word in _GAP.split(breakable(text))]
    style = "long text" if any(len(word) > _LONGEST_WORD for word in words) else "text"
    return _Cell(texts, span, style, as_badge and value is not None)
