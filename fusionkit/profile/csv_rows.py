"""CSV text to rows: quoted newlines are kept, and an unclosed quote spoils one row only."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass


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
