"""Cause cards: type, both sides with nodes and sources, fix and edit; escaped."""

from __future__ import annotations

import html
import re
from dataclasses import replace

from missed_sites import CAST, DIM, ORDER

from fusionkit.widgets.alignments import cause_cards


def words(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", markup))


def lines(markup: str) -> list[tuple[str, str]]:
    found = re.findall(r"<tr><th[^>]*>(.*?)</th><td[^>]*>(.*?)</td></tr>", markup, re.DOTALL)
    return [(name, words(cell)) for name, cell in found]


def test_a_card_tells_both_sides_with_nodes_and_lines_and_what_to_do():
    assert lines(cause_cards([DIM])) == [
        ("pattern", "[-1] at mean (my_norm_pattern.py:14)"),
        ("graph", "[3] at mean_7 (lib/model.py:102)"),
        ("fix", "write the dim as it stands in the graph"),
        ("edit", "- mean = aten.mean.dim(x, [-1], True)\n+ mean = aten.mean.dim(x, [3], True)"),
    ]


def test_cards_are_numbered_in_order():
    assert re.findall(r"<caption[^>]*>(.*?)</caption>", cause_cards([ORDER, DIM])) == [
        "1 argument_order",
        "2 dim_literal",
    ]


def test_a_cause_without_edit_nodes_or_values_is_told_all_the_same():
    assert [name for name, _ in lines(cause_cards([CAST]))] == ["pattern", "graph", "fix"]
    bare = replace(
        CAST, expected="", actual="", pattern_node="", graph_node="", pattern_source="", graph_source=""
    )
    assert lines(cause_cards([bare]))[0] == ("pattern", "nothing")


def test_the_edit_is_rendered_as_asked():
    assert lines(cause_cards([DIM], edit=lambda text: text.upper()))[-1][1].startswith("- MEAN")


def test_no_causes_are_no_cards():
    assert cause_cards([]) == ""


def test_hostile_text_stays_text():
    hostile = "<script>alert(1)</script>"
    fields = (
        "type",
        "pattern_node",
        "graph_node",
        "expected",
        "actual",
        "pattern_source",
        "graph_source",
        "fix",
        "edit",
    )
    markup = cause_cards([replace(DIM, **dict.fromkeys(fields, hostile))])
    assert "<script" not in markup
    assert words(markup).count(hostile) == len(fields)
