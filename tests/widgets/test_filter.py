"""The site explorer: choices change the rows; without ipywidgets there is no widget and no error."""

from __future__ import annotations

import sys

import pytest

from fusionkit.errors import MisuseError
from fusionkit.widgets import site_explorer
from fusionkit.widgets.filter import filter_rows

ROWS = [
    {"pattern": "rms_norm", "status": "hit", "site": "block.0"},
    {"pattern": "rms_norm", "status": "miss", "site": "block.1"},
    {"pattern": "rope", "status": "hit", "site": "block.2"},
    {"pattern": "all", "status": None, "site": "block.3"},
]


def explore(rows=ROWS, **options):
    box = site_explorer(rows, **options)
    drop_downs, table = box.children
    return {d.description: d for d in drop_downs.children}, table


def sites(table) -> list[str]:
    return [row["site"] for row in ROWS if row["site"] in table.value]


def test_everything_is_shown_at_first():
    drop_downs, table = explore()
    assert list(drop_downs) == ["pattern", "status"]
    assert sites(table) == ["block.0", "block.1", "block.2", "block.3"]
    assert "4 of 4 rows" in table.value


def test_a_choice_changes_the_rows_and_all_brings_them_back():
    drop_downs, table = explore()
    drop_downs["pattern"].value = ("rms_norm",)
    assert sites(table) == ["block.0", "block.1"]
    assert "2 of 4 rows" in table.value
    drop_downs["status"].value = ("hit",)
    assert sites(table) == ["block.0"]
    drop_downs["pattern"].value = (None,)
    assert sites(table) == ["block.0", "block.2"]


def test_choices_that_no_row_fits_say_nothing_to_show():
    drop_downs, table = explore()
    drop_downs["pattern"].value = ("rope",)
    drop_downs["status"].value = ("miss",)
    assert "nothing to show" in table.value


def test_a_value_named_all_is_not_the_choice_of_everything():
    drop_downs, table = explore()
    drop_downs["pattern"].value = ("all",)
    assert sites(table) == ["block.3"]


def test_hostile_values_stay_text():
    hostile = "<script>alert(1)</script>"
    _, table = explore([{"pattern": hostile, "status": hostile}])
    assert "<script" not in table.value
    assert "&lt;script&gt;" in table.value


def test_two_explorers_do_not_see_each_other():
    first, first_table = explore()
    _, second_table = explore()
    first["pattern"].value = ("rope",)
    assert sites(first_table) == ["block.2"]
    assert len(sites(second_table)) == 4


def test_no_rows_is_no_error():
    _, table = explore([])
    assert "nothing to show" in table.value


def test_an_unknown_column_is_named():
    with pytest.raises(MisuseError, match=r"'shape'.*pattern, status, site"):
        site_explorer(ROWS, by=("shape",))


def test_without_ipywidgets_there_is_no_widget(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    assert site_explorer(ROWS) is None


def test_filter_rows_compares_what_is_shown():
    rows = [{"n": 1}, {"n": "1"}, {"n": 2}, {}]
    assert filter_rows(rows, {"n": "1"}) == [{"n": 1}, {"n": "1"}]
    assert filter_rows(rows, {"n": None}) == rows
