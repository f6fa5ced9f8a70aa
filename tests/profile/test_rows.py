from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionkit.profile.csv_rows import read_rows


def cells(text: str) -> list[list[str]]:
    return [list(row.cells) for row in read_rows(text)]


def test_quoted_newlines_stay_in_their_field_and_lines_count_physically() -> None:
    rows = list(read_rows('a,b\n"1\n2",x\n3,y\n'))
    assert [(row.line, row.cells) for row in rows] == [(1, ("a", "b")), (2, ("1\n2", "x")), (4, ("3", "y"))]


def test_an_unclosed_quote_costs_one_line_only() -> None:
    rows = list(read_rows('a,b,c\n1,"x,2\n3,y,4\n5,z,6\n'))
    assert [row.line for row in rows] == [1, 2, 3, 4]
    assert rows[1].fault is not None
    assert [list(row.cells) for row in rows[2:]] == [["3", "y", "4"], ["5", "z", "6"]]


def test_an_unclosed_quote_with_a_long_rest_does_not_hit_the_field_limit() -> None:
    text = 'a,b\n1,"x\n' + "2,y\n" * 60_000
    rows = list(read_rows(text))
    assert len(rows) == 60_002
    assert [row.line for row in rows if row.fault] == [2]


def test_a_field_beyond_the_limit_is_one_faulty_row() -> None:
    rows = list(read_rows("a,b\n1," + "x" * (csv.field_size_limit() + 1) + "\n2,y\n"))
    assert [bool(row.fault) for row in rows] == [False, True, False]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_blank_lines_are_no_rows(newline: str) -> None:
    assert cells(newline.join(["a,b", "", "1,2", ""])) == [["a", "b"], ["1", "2"]]


@given(
    st.lists(st.lists(st.text(max_size=8), min_size=3, max_size=3), min_size=1),
    st.sampled_from(["\n", "\r\n"]),
)
def test_what_csv_writes_is_read_back(rows: list[list[str]], newline: str) -> None:
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator=newline, quoting=csv.QUOTE_ALL).writerows(rows)
    assert cells(stream.getvalue()) == rows


@given(st.text(alphabet='a",\n\r1 ', max_size=80))
def test_any_text_is_read_and_every_line_with_text_belongs_to_a_row(text: str) -> None:
    rows = list(read_rows(text))
    starts = [row.line for row in rows]
    assert starts == sorted(set(starts))
