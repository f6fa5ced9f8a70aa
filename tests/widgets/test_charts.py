"""Bar charts: well-formed SVG, bars in proportion, described in words, nothing loaded."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from fusionkit.errors import MisuseError
from fusionkit.widgets import bar_chart_svg

SVG = "{http://www.w3.org/2000/svg}"
ROWS = [
    {"kernel": "npu_rms_norm", "before": 0, "after": 12},
    {"kernel": "rsqrt", "before": 24, "after": None},
]


def draw(rows=ROWS, label="kernel", values=("before", "after"), **options) -> ET.Element:
    return ET.fromstring(bar_chart_svg(rows, label, values, title="Kernels", **options))


def bars(chart: ET.Element) -> list[float]:
    return [float(bar.attrib["width"]) for bar in chart.findall(f"{SVG}g/{SVG}rect")]


def test_bars_are_in_proportion_to_their_values():
    zero, twelve, twenty_four, absent = bars(draw())
    assert zero == absent == 0
    assert twenty_four == pytest.approx(2 * twelve)
    assert 300 < twenty_four < float(draw().attrib["width"])


def test_values_are_written_beside_their_bars():
    texts = [text.text for text in draw(unit="us").iter(f"{SVG}text")]
    assert texts == [
        "Kernels", "before", "after", "npu_rms_norm", "0 us", "12 us", "rsqrt", "24 us", "no value",
    ]  # fmt: skip


def test_title_and_description_tell_it_in_words():
    chart = draw()
    title, description = chart.find(f"{SVG}title"), chart.find(f"{SVG}desc")
    assert title.text == "Kernels"
    assert description.text == "npu_rms_norm: before 0, after 12; rsqrt: before 24, after no value"
    assert chart.attrib["role"] == "img"
    assert chart.attrib["aria-labelledby"] == f"{title.attrib['id']} {description.attrib['id']}"


def test_same_rows_same_bytes_and_other_rows_other_ids():
    assert ET.tostring(draw()) == ET.tostring(draw())
    assert draw().attrib["aria-labelledby"] != draw(rows=ROWS[:1]).attrib["aria-labelledby"]


def test_hostile_text_stays_text():
    hostile = '</text><script>alert("x")</script>'
    chart = draw([{"k": hostile, hostile: 1}], label="k", values=[hostile], unit=hostile)
    assert not [element for element in chart.iter() if element.tag.endswith("script")]
    assert [text.text for text in chart.iter(f"{SVG}text")][1:] == [hostile, hostile, f"1 {hostile}"]
    assert chart.find(f"{SVG}g/{SVG}rect/{SVG}title").text == f"{hostile}: 1 {hostile}"


def test_nothing_is_loaded():
    markup = bar_chart_svg(ROWS, "kernel", ["before"], title="t")
    assert not re.search(r"href|url\(|@import|<image|<script|<style", markup)


def test_long_names_are_cut_but_kept_in_their_tooltip():
    name = "k" * 300
    chart = draw([{"kernel": name, "n": 1}], values=["n"])
    group = chart.find(f"{SVG}g")
    assert group.find(f"{SVG}title").text == name
    assert group.find(f"{SVG}text").text == "k" * 96 + "…"


def test_all_zero_is_drawn():
    assert bars(draw([{"kernel": "a", "n": 0}], values=["n"])) == [0]


def test_no_rows_says_nothing_to_show():
    assert "nothing to show" in bar_chart_svg([], "kernel", ["n"], title="Kernels")


def test_no_rows_can_say_why():
    markup = bar_chart_svg([], "kernel", ["n"], title="Kernels", empty="no <kernel> ran")
    assert "no &lt;kernel&gt; ran" in markup
    assert "nothing to show" not in markup


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "12"])
def test_a_value_that_no_bar_can_show_is_refused(value):
    with pytest.raises(MisuseError, match="'n'"):
        draw([{"kernel": "a", "n": value}], values=["n"])


@pytest.mark.parametrize("count", [0, 7])
def test_too_few_or_too_many_columns_are_refused(count):
    with pytest.raises(MisuseError, match=f"{count} value columns"):
        draw(values=[f"c{i}" for i in range(count)])
