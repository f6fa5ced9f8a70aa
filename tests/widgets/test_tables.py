"""Tables: escaped, badged, aligned, whole without script."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionkit.errors import MisuseError
from fusionkit.verdict import Verdict
from fusionkit.widgets import html_table, show

HOSTILE = "<script>alert(\"x\")</script><img src=x onerror='y'> & \" '"


class Reader(HTMLParser):
    """Collect every tag, attribute and cell text of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.rows: list[list[str]] = []
        self.styles: list[str] = []
        self.in_cell = False

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.in_cell = True
            self.rows[-1].append("")
            self.styles.append(dict(attrs)["style"])
        if tag == "br":
            self.rows[-1][-1] += "\n"

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.in_cell = False

    def handle_data(self, data):
        if self.in_cell:
            self.rows[-1][-1] += data


def read(markup: str) -> Reader:
    reader = Reader()
    reader.feed(markup)
    reader.close()
    return reader


ALLOWED_TAGS = {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "span", "br", "wbr"}
ALLOWED_ATTRIBUTES = {"tabindex", "role", "aria-label", "style", "scope", "rowspan"}


def test_hostile_text_stays_text_in_cells_heads_badges_lists_and_captions():
    row = {HOSTILE: HOSTILE, "verdict": HOSTILE, "list": [HOSTILE, 1]}
    page = read(html_table([row], caption=HOSTILE))
    assert set(page.tags) <= ALLOWED_TAGS
    assert set(page.attributes) <= ALLOWED_ATTRIBUTES
    assert page.rows[0] == [HOSTILE, "verdict", "list"]
    assert page.rows[1] == [HOSTILE, HOSTILE, HOSTILE + "\n1"]


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.floats() | st.none() | st.lists(st.text())))
def test_no_value_makes_a_tag_or_attribute(row):
    page = read(html_table([row], caption="c", verdict_column=next(iter(row), "verdict")))
    assert set(page.tags) <= ALLOWED_TAGS
    assert set(page.attributes) <= ALLOWED_ATTRIBUTES
    assert len(page.rows) == 2


@pytest.mark.parametrize("rows", [[], ()])
def test_no_rows_says_nothing_to_show(rows):
    markup = html_table(rows, caption="Sites")
    assert "nothing to show" in markup
    assert "Sites" in markup
    assert "<table" not in markup


def test_no_rows_can_say_why():
    markup = html_table([], caption="Sites", empty="no site was <missed>")
    assert "no site was &lt;missed&gt;" in markup
    assert "nothing to show" not in markup


@pytest.mark.parametrize(
    ("column", "value", "colour"),
    [
        ("verdict", Verdict.PASS, "#1a7f37"),
        ("verdict", Verdict.FAIL, "#cf222e"),
        ("verdict", Verdict.INCONCLUSIVE, "#8a5a00"),
        ("status", "hit", "#1a7f37"),
        ("status", "miss", "#cf222e"),
        ("status", "skipped", "#8a5a00"),
        ("status", "already_fused", "#0969da"),
    ],
)
def test_badges_have_their_colour(column, value, colour):
    markup = html_table([{column: value, "note": "PASS"}])
    assert f"background:{colour};color:#ffffff" in markup
    assert markup.count("color:#ffffff") == 1
    assert read(markup).rows[1] == [str(value), "PASS"]


def test_verdict_column_can_be_named():
    assert "color:#ffffff" not in html_table([{"answer": "PASS"}])
    assert "color:#ffffff" in html_table([{"answer": "PASS"}], verdict_column="answer")


def test_numbers_are_right_aligned_and_text_is_not():
    page = read(html_table([{"n": 3, "f": np.float32(0.5), "b": True, "s": "3"}]))
    aligned = ["text-align:right" in style for style in page.styles[4:]]
    assert aligned == [True, True, False, False]
    assert page.rows[1] == ["3", "0.5", "True", "3"]


def test_heads_and_gaps_of_a_column_of_numbers_stand_with_them():
    page = read(html_table([{"n": 3, "mixed": 1}, {"n": None, "mixed": "x"}]))
    assert ["text-align:right" in style for style in page.styles] == [True, False, True, True, True, False]


def test_equal_neighbours_share_a_cell_only_within_the_column_to_their_left():
    rows = [
        {"p": p, "v": v, "n": n} for p, v, n in (("a", "x", 1), ("a", "x", 1), ("a", "y", 1), ("b", "y", 1))
    ]
    markup = html_table(rows, merge=["p", "v"])
    assert read(markup).rows[1:] == [["a", "x", "1"], ["1"], ["y", "1"], ["b", "y", "1"]]
    assert re.findall(r'rowspan="(\d+)"', markup) == ["3", "2"]
    assert read(html_table(rows)).rows[2] == ["a", "x", "1"]


def test_values_that_are_no_number_are_shown_as_what_they_are():
    page = read(html_table([{"a": float("nan"), "b": float("inf"), "c": None, "d": 1 / 3}, {"a": 1}]))
    assert page.rows[1] == ["nan", "inf", "–", "0.333333"]
    assert page.rows[2] == ["1", "–", "–", "–"]


def test_columns_choose_and_order_and_default_to_first_appearance():
    rows = [{"a": 1}, {"b": 2, "a": 3}]
    assert read(html_table(rows)).rows == [["a", "b"], ["1", "–"], ["3", "2"]]
    assert read(html_table(rows, columns=["b"])).rows == [["b"], ["–"], ["2"]]


def test_wide_tables_scroll_and_long_text_wraps():
    markup = html_table([{"a": "x" * 500}])
    assert "overflow-x:auto" in markup
    assert "overflow-wrap:anywhere" in markup


@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        ("diffusers/models/transformers/flux.py:102", ["diffusers/", "models/transformers/", "flux.py:102"]),
        ("single_transformer_blocks.0.attn", ["single_transformer_", "blocks.0.attn"]),
        ("HandWrittenRmsNormPattern_bfloat16", ["HandWritten", "RmsNormPattern_bfloat16"]),
        ("register_replacement", ["register_replacement"]),
        ("x" * 60, ["x" * 60]),
    ],
)
def test_long_names_break_between_their_parts(name, pieces):
    markup = html_table([{"a": name}])
    assert "<wbr>".join(pieces) in markup
    assert read(markup).rows[1] == [name]


def test_a_small_number_does_not_break_at_its_minus():
    assert '<span style="white-space:nowrap">9.99e-07</span>' in html_table([{"a": "graph 9.99e-07, there"}])


def test_show_wraps_for_the_notebook():
    assert show("<b>1</b>")._repr_html_() == "<b>1</b>"


def test_show_puts_metadata_into_the_output():
    assert show("<b>1</b>", {"k": 1})._repr_html_() == ("<b>1</b>", {"k": 1})


def test_show_without_ipython_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", None)
    with pytest.raises(MisuseError, match="notebooks"):
        show("")
