"""CSV text to rows: quoted newlines are kept, an unclosed quote spoils one row only, and ragged rows are aligned.

Real files lack a field in some rows, with the later ones shifted left. Every position of the gap is tried against
the kind of each column. The row is kept if all positions that fit agree on name, type and core; other fields on
which they disagree, durations included, become empty. Otherwise the row is left out.
"""

from __future__ import annotations

import csv
import io
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

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


@dataclass(frozen=True, slots=True)
class RawRow:
    """Cells of one row, its first physical line (1-based), and the fault of its quoting, if any."""

    line: int
    cells: tuple[str, ...]
    fault: str | None = None


def read_rows(text: str) -> Iterator[RawRow]:
    """Yield the rows of a CSV text (LF or CRLF); blank lines are skipped.

    The first row sets the width. A multi-line row of another width has an unclosed quote: its first line becomes a
    row with a fault, and reading continues on its second line.
    """
    lines = list(io.StringIO(text, newline=""))
    width: int | None = None
    at = 0
    while at < len(lines):
        for row in _read_from(lines, at, width):
            if row is None:
                yield _lone(lines[at], at + 1)
                at += 1
                break
            cells, after = row
            first = at
            at = after
            if cells:
                width = len(cells) if width is None else width
                yield RawRow(first + 1, tuple(cells))


def _read_from(lines: list[str], at: int, width: int | None) -> Iterator[tuple[list[str], int] | None]:
    """Rows from line index `at` on, each with the index after it; None at an unclosed quote."""
    reader = csv.reader(lines[index] for index in range(at, len(lines)))
    before = at
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield None
            return
        after = at + reader.line_num
        width = len(cells) if width is None and cells else width
        if after - before > 1 and width is not None and len(cells) != width:
            yield None
            return
        yield cells, after
        before = after


def _lone(line: str, number: int) -> RawRow:
    """One line read without its neighbours."""
    try:
        cells = next(csv.reader([line]), [])
    except csv.Error as error:
        return RawRow(number, (), f"unreadable ({error})")
    return RawRow(number, tuple(cells), "a quote is not closed")


def align(cells: Sequence[str], header: Header) -> list[str] | None:
    """Put a ragged row's cells under the header's columns.

    Returns `header.width` cells, "" for unknown ones; None if no position fits, or those that fit disagree.
    """
    off = len(cells) - header.width
    if off > 0 and not any(cell.strip() for cell in cells[header.width :]):
        return list(cells[: header.width])
    kinds = header.kinds
    left, right = _leading(kinds, cells), _leading(kinds[::-1], cells[::-1])
    if off < 0:  # adjacent empty cells are inserted
        blank = [_fits(kind, "") for kind in kinds]
        fitting = [
            [*cells[:at], *[""] * -off, *cells[at:]]
            for at in range(len(cells) + 1)
            if left[at] and right[len(cells) - at] and all(blank[at : at - off])
        ]
    else:  # adjacent cells are joined to one (an unquoted comma)
        fitting = [
            [*cells[:at], merged, *cells[at + off + 1 :]]
            for at in range(len(kinds))
            if left[at] and right[len(kinds) - at - 1]
            if _fits(kinds[at], merged := ",".join(cells[at : at + off + 1]))
        ]
    if not fitting:
        return None
    columns = [set(column) for column in zip(*fitting, strict=True)]
    if any(len(columns[header.index[field]]) > 1 for field in _AGREE if field in header.index):
        return None
    return [column.pop() if len(column) == 1 else "" for column in columns]


def _leading(kinds: Sequence[Kind], cells: Sequence[str]) -> list[bool]:
    """Entry n: whether the first n cells fit their columns."""
    fits = (_fits(kind, cell) for kind, cell in zip(kinds, cells, strict=False))
    return list(accumulate(fits, operator.and_, initial=True))


def _fits(kind: Kind, cell: str) -> bool:
    return _CELLS[kind].fullmatch(cell.strip().strip('"').strip()) is not None
