"""Static HTML tables of result rows: inline styles only, every text escaped, no script, nothing to load."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from fusionkit.errors import MisuseError

NOTHING = '<p style="font-style:italic">nothing to show</p>'

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
_TABLE = "border-collapse:collapse;table-layout:auto;font-size:13px;margin:0"
_CAPTION = "caption-side:top;text-align:left;font-weight:bold;padding:4px 0"
_CELL = "border:1px solid #8c959f;padding:3px 8px;vertical-align:top;max-width:36em"
_TEXT = f"{_CELL};text-align:left;white-space:normal;overflow-wrap:anywhere"
_NUMBER = f"{_CELL};text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums"
_HEAD = f"{_CELL};text-align:left;white-space:nowrap;font-weight:bold;background:#8c959f33"


def html_table(
    rows: Sequence[Mapping[str, object]],
    *,
    columns: Sequence[str] | None = None,
    caption: str | None = None,
    verdict_column: str = "verdict",
) -> str:
    """Render `rows` as an HTML table that needs neither script nor network.

    Args:
        rows: one mapping per row; a column that a row lacks, or that is None, is shown as a dash. Lists are
            shown one item a line.
        columns: the columns and their order; default: all keys, in the order in which they first appear.
        caption: a line above the table.
        verdict_column: the column whose values become coloured badges, besides the column `status`.

    Returns:
        HTML; with no rows, the caption and "nothing to show".
    """
    title = html.escape(caption) if caption else ""
    if not rows:
        return (f"<p><strong>{title}</strong></p>" if title else "") + NOTHING
    names = list(columns) if columns is not None else column_names(rows)
    head = "".join(f'<th scope="col" style="{_HEAD}">{html.escape(name)}</th>' for name in names)
    body = "".join(
        "<tr>"
        + "".join(_cell(row.get(name), name in (verdict_column, "status")) for name in names)
        + "</tr>\n"
        for row in rows
    )
    label = f'<caption style="{_CAPTION}">{title}</caption>' if title else ""
    return (
        f'<div tabindex="0" role="region" aria-label="{title or "table"}" style="{_REGION}">'
        f'<table style="{_TABLE}">{label}<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'
    )


def column_names(rows: Iterable[Mapping[str, object]]) -> list[str]:
    """Return all keys of `rows` in the order in which they first appear."""
    return list(dict.fromkeys(str(key) for row in rows for key in row))


def show(markup: str) -> Any:
    """Wrap HTML or SVG text so that a notebook renders it: an `IPython.display.HTML`.

    Raises MisuseError where IPython is not installed.
    """
    try:
        from IPython import display
    except ImportError as error:
        raise MisuseError("show() needs IPython: pip install 'fusionkit[notebooks]'") from error
    html_class: Any = display.HTML
    return html_class(markup)


def plain_text(value: object) -> str:
    """Return the text shown for a value: floats with six significant digits, a dash for None."""
    if value is None:
        return "\N{EN DASH}"
    if isinstance(value, bool | Integral) or not isinstance(value, Real):
        return str(value)
    number = float(value)
    return f"{number:.6g}" if math.isfinite(number) else str(number)


def _cell(value: object, badge: bool) -> str:
    if isinstance(value, Real) and not isinstance(value, bool):
        return f'<td style="{_NUMBER}">{html.escape(plain_text(value))}</td>'
    if isinstance(value, list | tuple):
        inner = "<br>".join(html.escape(plain_text(item)) for item in value)
    else:
        inner = html.escape(plain_text(value))
    if badge and value is not None:
        colour = _BADGES.get(str(value), _GREY)
        inner = (
            f'<span style="background:{colour};color:#ffffff;border-radius:3px;padding:1px 6px;'
            f'font-weight:bold;white-space:nowrap">{inner}</span>'
        )
    return f'<td style="{_TEXT}">{inner}</td>'
