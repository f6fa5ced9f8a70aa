"""Static bar charts as inline SVG, described in words for screen readers: no script, nothing to load."""

from __future__ import annotations

import hashlib
import html
import math
from collections.abc import Mapping, Sequence
from numbers import Real

from fusionkit.errors import MisuseError
from fusionkit.widgets.tables import NOTHING_TO_SHOW, nothing, plain_text

# Okabe and Ito's palette, told apart under all common colour blindness.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
_WIDTH, _BAR, _LABEL, _GAP, _TOP, _VALUE_SPACE = 720, 14, 18, 10, 52, 110
_LONGEST = 96  # characters of a label that fit into the width


def bar_chart_svg(
    rows: Sequence[Mapping[str, object]],
    label: str,
    values: Sequence[str],
    *,
    title: str,
    unit: str = "",
    empty: str = NOTHING_TO_SHOW,
) -> str:
    """Draw one group of horizontal bars per row, one bar per column in `values` (before, after).

    Args:
        rows: one mapping per group.
        label: the column that names the group.
        values: at most six columns of numbers, each at least 0, or None where there is no value.
        title: the line above the chart.
        unit: the unit that follows each value, e.g. "us".
        empty: what to say where there are no rows: why there are none.

    Returns:
        SVG text to put into a page; with no rows, the title and `empty`.

    Raises:
        MisuseError: a value is no finite number of at least 0; no column, or more than six.
    """
    if not 1 <= len(values) <= len(_COLOURS):
        raise MisuseError(f"bar_chart_svg: {len(values)} value columns; give 1 to {len(_COLOURS)}")
    if not rows:
        return nothing(empty, title)
    numbers = [[_number(row, column) for column in values] for row in rows]
    names = [plain_text(row.get(label)) for row in rows]
    largest = max((n for group in numbers for n in group if n is not None), default=0.0) or 1.0
    group_height = _LABEL + _BAR * len(values) + _GAP
    bars = [
        _group(name, group, values, largest, unit, _TOP + index * group_height)
        for index, (name, group) in enumerate(zip(names, numbers, strict=True))
    ]
    words = "; ".join(
        f"{name}: "
        + ", ".join(f"{column} {_shown(n, unit)}" for column, n in zip(values, group, strict=True))
        for name, group in zip(names, numbers, strict=True)
    )
    return _svg(title, words, [_legend(values), *bars], _TOP + len(rows) * group_height)


def _number(row: Mapping[str, object], column: str) -> float | None:
    value = row.get(column)
    if value is None:
        return None
    if isinstance(value, Real) and math.isfinite(value) and float(value) >= 0:
        return float(value)
    raise MisuseError(f"bar_chart_svg: column {column!r} holds {value!r}; a bar needs a number of at least 0")


def _shown(number: float | None, unit: str) -> str:
    return "no value" if number is None else f"{plain_text(number)} {unit}".rstrip()


def _text(x: float, y: float, content: str, extra: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="currentColor"{extra}>{html.escape(content)}</text>'


def _group(
    name: str, numbers: Sequence[float | None], values: Sequence[str], largest: float, unit: str, top: int
) -> str:
    short = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}\N{HORIZONTAL ELLIPSIS}"
    parts = [f"<g><title>{html.escape(name)}</title>", _text(0, top + _LABEL - 5, short)]
    for index, (column, number) in enumerate(zip(values, numbers, strict=True)):
        y = top + _LABEL + index * _BAR
        width = round((number or 0) / largest * (_WIDTH - _VALUE_SPACE), 2)
        parts.append(
            f'<rect x="0" y="{y}" width="{width:g}" height="{_BAR - 2}" fill="{_COLOURS[index]}">'
            f"<title>{html.escape(column)}: {html.escape(_shown(number, unit))}</title></rect>"
        )
        parts.append(_text(width + 5, y + _BAR - 4, _shown(number, unit)))
    return "".join(parts) + "</g>"


def _legend(values: Sequence[str]) -> str:
    step = _WIDTH // len(_COLOURS)
    return "".join(
        f'<rect x="{index * step}" y="28" width="12" height="12" fill="{_COLOURS[index]}"/>'
        + _text(index * step + 17, 38, column)
        for index, column in enumerate(values)
    )


def _svg(title: str, words: str, parts: Sequence[str], height: int) -> str:
    """Wrap `parts`; ids come from the content, so that two charts on a page differ."""
    key = hashlib.sha256("\n".join([title, words]).encode("utf-8")).hexdigest()[:12]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="t{key} d{key}" '
        f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'style="max-width:100%;height:auto" font-family="sans-serif" font-size="12">'
        f'<title id="t{key}">{html.escape(title)}</title><desc id="d{key}">{html.escape(words)}</desc>'
        + _text(0, 16, title, ' font-weight="bold" font-size="14"')
        + "".join(parts)
        + "</svg>"
    )
