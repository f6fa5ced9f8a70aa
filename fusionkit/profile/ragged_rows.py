"""Ragged rows: assign the cells of a row with too few or too many fields to columns.

Real files lack a field in some rows, with the later ones shifted left. Every position of the gap is tried against
the kind of each column. The row is kept if all positions that fit agree on name, type and core; other fields on
which they disagree, durations included, become empty. Otherwise the row is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fusionkit.profile.dialects import Header, Kind

_AGREE = ("name", "type", "core")
_NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"
_BLANK = r"|N/A|NULL|"
_CELLS: dict[Kind, re.Pattern[str]] = {
    "name": re.compile(rf"(?!({_NUMBER}|N/A|YES|NO)$).+", re.DOTALL),
    "type": re.compile(rf"0|(?!({_NUMBER}|dynamic|static|YES|NO)$).*", re.DOTALL),
    "state": re.compile(rf"[a-z_]+{_BLANK}"),
    "core": re.compile(r"[A-Z][A-Z0-9_ /]*"),
    "number": re.compile(rf"{_NUMBER}{_BLANK}"),
    "duration": re.compile(rf"(?!\d{{12}}){_NUMBER}{_BLANK}"),  # 12 digits are a start time, or 11 days
    "count": re.compile(rf"\d+{_BLANK}"),
    "flag": re.compile(rf"YES|NO{_BLANK}"),
    "shapes": re.compile(rf"[-\d,; ]+{_BLANK}"),
    "word": re.compile(r"(?!\d).*"),
    "any": re.compile(r".*", re.DOTALL),
}


def align(cells: Sequence[str], header: Header) -> list[str] | None:
    """Put a ragged row's cells under the header's columns.

    Returns `header.width` cells, "" for unknown ones; None if no position fits, or those that fit disagree.
    """
    off = len(cells) - header.width
    if off > 0 and not any(cell.strip() for cell in cells[header.width :]):
        return list(cells[: header.width])
    fitting = _widened(cells, header, -off) if off < 0 else _narrowed(cells, header, off)
    if not fitting:
        return None
    columns = [set(column) for column in zip(*fitting, strict=True)]
    if any(len(columns[header.index[field]]) > 1 for field in _AGREE if field in header.index):
        return None
    return [column.pop() if len(column) == 1 else "" for column in columns]


def _widened(cells: Sequence[str], header: Header, gap: int) -> list[list[str]]:
    """All fitting rows with `gap` adjacent empty cells inserted."""
    kinds = header.kinds
    left = _prefixes([_fits(kind, cell) for kind, cell in zip(kinds, cells, strict=False)])
    right = _prefixes([_fits(kind, cell) for kind, cell in zip(kinds[::-1], cells[::-1], strict=False)])
    blank = [_fits(kind, "") for kind in kinds]
    return [
        [*cells[:at], *[""] * gap, *cells[at:]]
        for at in range(len(cells) + 1)
        if left[at] and right[len(cells) - at] and all(blank[at : at + gap])
    ]


def _narrowed(cells: Sequence[str], header: Header, extra: int) -> list[list[str]]:
    """All fitting rows with `extra` + 1 adjacent cells joined to one (an unquoted comma)."""
    kinds = header.kinds
    left = _prefixes([_fits(kind, cell) for kind, cell in zip(kinds, cells, strict=False)])
    right = _prefixes([_fits(kind, cell) for kind, cell in zip(kinds[::-1], cells[::-1], strict=False)])
    return [
        [*cells[:at], merged, *cells[at + extra + 1 :]]
        for at in range(len(kinds))
        if left[at] and right[len(kinds) - at - 1]
        if _fits(kinds[at], merged := ",".join(cells[at : at + extra + 1]))
    ]


def _prefixes(fits: list[bool]) -> list[bool]:
    """Entry n: whether the first n are all True."""
    answer = [True]
    for fit in fits:
        answer.append(answer[-1] and fit)
    return answer


def _fits(kind: Kind, cell: str) -> bool:
    return _CELLS[kind].fullmatch(cell.strip().strip('"').strip()) is not None
