"""Static bar charts as inline SVG, described in words for screen readers: no script, nothing to load."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from numbers import Real

from fusionkit.errors import MisuseError
from fusionkit.templates import render
from fusionkit.widgets.tables import NOTHING_TO_SHOW, nothing, plain_text

DRAWINGS = "widgets/templates/drawings.html"
# Okabe and Ito's palette, distinguishable under all common kinds of colour blindness.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
_WIDTH, _BAR, _LABEL, _GAP, _TOP, _VALUE_SPACE = 720, 14, 18, 10, 52, 110
_LONGEST = 96  # characters of a label that fit into the width
Bar = tuple[int, float, str, str, str]  # y and width in pixels, colour, column, the value as text


def bar_chart_svg(
    rows: Sequence[Mapping[str, object]],
    label: str,
    values: Sequence[str],
    *,
    title: str,
    unit: str = "",
    empty: str = NOTHING_TO_SHOW,
) -> str:
    """Draw one group of horizontal bars per row as SVG, one bar per column in `values` (before, after).

    `label`: the column that names the group. `values`: one to six columns of finite numbers of at least 0, or None
    for no value; MisuseError for others. `unit` follows each value, e.g. "us". With no rows, the title and `empty`,
    the reason for that.
    """
    if not 1 <= len(values) <= len(_COLOURS):
        raise MisuseError(f"bar_chart_svg: {len(values)} value columns; give 1 to {len(_COLOURS)}")
    if not rows:
        return nothing(empty, title)
    numbers = [[_number(row, column) for column in values] for row in rows]
    names = [plain_text(row.get(label)) for row in rows]
    largest = max((n for group in numbers for n in group if n is not None), default=0.0) or 1.0
    group_height = _LABEL + _BAR * len(values) + _GAP
    groups = [
        _group(name, group, values, largest, unit, _TOP + index * group_height)
        for index, (name, group) in enumerate(zip(names, numbers, strict=True))
    ]
    description = "; ".join(
        f"{name}: " + ", ".join(f"{column} {value}" for *_, column, value in bars)
        for name, (*_, bars) in zip(names, groups, strict=True)
    )
    step = _WIDTH // len(_COLOURS)
    legend = [(index * step, _COLOURS[index], column) for index, column in enumerate(values)]
    height = _TOP + len(rows) * group_height
    return render(
        DRAWINGS, "chart", drawing_key(title, description), title, description, _WIDTH, height, legend, groups
    )


def drawing_key(title: str, description: str) -> str:
    """An id from the content, so that two drawings on a page differ."""
    return hashlib.sha256(f"{title}\n{description}".encode()).hexdigest()[:12]


def _number(row: Mapping[str, object], column: str) -> float | None:
    value = row.get(column)
    if value is None:
        return None
    if isinstance(value, Real) and math.isfinite(value) and float(value) >= 0:
        return float(value)
    raise MisuseError(f"bar_chart_svg: column {column!r} holds {value!r}; a bar needs a number of at least 0")


def _value_text(number: float | None, unit: str) -> str:
    return "no value" if number is None else f"{plain_text(number)} {unit}".rstrip()


def _group(
    name: str, numbers: Sequence[float | None], values: Sequence[str], largest: float, unit: str, top: int
) -> tuple[str, str, int, list[Bar]]:
    """Name, short name, the y of the name, and the bars of one row."""
    short_name = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}\N{HORIZONTAL ELLIPSIS}"
    bars: list[Bar] = []
    for index, (column, number) in enumerate(zip(values, numbers, strict=True)):
        width = round((number or 0) / largest * (_WIDTH - _VALUE_SPACE), 2)
        bars.append((top + _LABEL + index * _BAR, width, _COLOURS[index], column, _value_text(number, unit)))
    return name, short_name, top + _LABEL - 5, bars
