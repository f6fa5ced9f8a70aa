"""A widget in JupyterLab does what a person expects of it: a choice in the drop-down changes the table."""

from __future__ import annotations

import nbformat
import pytest

pytestmark = [pytest.mark.browser, pytest.mark.notebook]

CELL = """\
from fusionkit.widgets import html_table, show, site_explorer

rows = [
    {"pattern": "rms_norm", "status": "hit", "site": "block.0"},
    {"pattern": "rms_norm", "status": "miss", "site": "block.1"},
    {"pattern": "rope", "status": "hit", "site": "block.2"},
]
site_explorer(rows)
"""


def test_a_choice_in_the_site_explorer_changes_the_table(lab, open_notebook):
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(CELL), nbformat.v4.new_code_cell("show(html_table(rows))")],
        metadata={"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
    )
    nbformat.write(notebook, lab.folder / "sites.ipynb")
    page = open_notebook("sites.ipynb")
    table = page.locator(".widget-html table")
    static = page.locator(".jp-RenderedHTMLCommon table")
    table.wait_for()
    static.wait_for()
    assert table.locator("tbody tr").count() == 3

    page.locator(".widget-dropdown select").nth(1).select_option(label="miss")
    page.locator(".widget-html caption", has_text="1 of 3 rows").wait_for()
    assert table.locator("tbody tr").all_inner_texts() == ["rms_norm\tmiss\tblock.1"]

    page.locator(".widget-dropdown select").nth(1).select_option(label="all")
    page.locator(".widget-html caption", has_text="3 of 3 rows").wait_for()
    assert static.locator("tbody tr").count() == 3
