"""The aligner in JupyterLab: drop-downs, next and previous, copying; its static page without JavaScript or network."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from missed_sites import BARE, DIM, ORDER, SITE, site_of

from fusionkit.evidence.clean_html import clean_html
from fusionkit.evidence.html import page
from fusionkit.widgets.alignments import alignments_html

pytestmark = pytest.mark.browser

TESTS = Path(__file__).resolve().parents[1]
CELL = f"""\
import sys
sys.path.insert(0, {str(TESTS)!r})
from dataclasses import replace
from missed_sites import BARE, SITE, site_of
from fusionkit.widgets import views
from fusionkit.widgets.aligner import aligner

misses = {{"rms_norm": [SITE, site_of(1)], "rope": [replace(BARE, module="blocks.0.attn")]}}
aligner(misses)
"""
CUT_OFF = """() => [document.documentElement, ...document.querySelectorAll('td, th, pre, div, summary, svg')]
  .filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && !(e instanceof SVGElement))
  .map((e) => `${e.localName}: ${e.innerText.slice(0, 60)}`)"""
OUTSIDE = """() => [...document.querySelectorAll('svg g')].flatMap((group) => {
  const box = group.querySelector('rect').getBBox();
  return [...group.querySelectorAll('text')].filter((text) => {
    const t = text.getBBox();
    return t.x < box.x || t.x + t.width > box.x + box.width || t.y < box.y || t.y + t.height > box.y + box.height;
  }).map((text) => text.textContent);
})"""


@pytest.mark.notebook
def test_a_person_steps_through_the_misses_and_copies_an_edit(lab, open_notebook):
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(CELL),
            nbformat.v4.new_code_cell("views.alignments(misses, empty='')"),
        ],
        metadata={"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
    )
    nbformat.write(notebook, lab.folder / "misses.ipynb")
    page = open_notebook("misses.ipynb")
    widget = page.locator(".jupyter-widgets.widget-vbox, .widget-vbox").first
    widget.locator("text=miss 1 of 3").wait_for()
    pattern, site = (widget.locator("select").nth(index) for index in (0, 1))
    previous, following = (widget.locator("button", has_text=name) for name in ("previous miss", "next miss"))
    assert previous.is_disabled()

    following.click()
    widget.locator("text=miss 2 of 3").wait_for()
    assert "blocks.1.norm" in site.locator("option:checked").inner_text()
    pattern.select_option(label="rope")
    widget.locator("text=miss 3 of 3").wait_for()
    widget.locator("text=root_not_indexed").wait_for()
    assert following.is_disabled()
    previous.click()
    previous.click()
    widget.locator("text=miss 1 of 3").wait_for()
    site.select_option(index=1)
    widget.locator("text=miss 2 of 3").wait_for()

    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    widget.locator("button", has_text="copy edit").nth(1).click()
    widget.locator("[role=status]", has_text="copied").wait_for()
    assert page.evaluate("() => navigator.clipboard.readText()") == DIM.edit

    page.evaluate("() => Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    widget.locator("button", has_text="copy edit").first.click()
    widget.locator("[role=status]", has_text="selected").wait_for()
    assert (
        page.evaluate(
            "() => { const f = document.activeElement; return f.value.slice(f.selectionStart, f.selectionEnd); }"
        )
        == ORDER.edit
    )

    static = page.locator(".jp-RenderedHTMLCommon details[open]")
    assert static.count() == 2


@pytest.fixture
def page_file(tmp_path):
    path = tmp_path / "page.html"
    sites = [SITE, *(site_of(number) for number in range(1, 152)), BARE]
    body = clean_html(alignments_html({"rms_norm": sites}))
    path.write_text(page("misses", f"<main>{body}</main>"), "utf-8")
    return path


def test_the_static_page_is_whole_without_network_and_javascript(page_file, open_archived):
    page = open_archived(page_file)
    page.assert_whole()
    assert len(page.tables) == 1 + 3 + 1
    for told in (
        "152 sites missed by MyNorm_bfloat16",
        "differs: dim=",
        "graph only",
        "pattern only",
        DIM.edit,
    ):
        assert told in page.text


@pytest.mark.parametrize("width", [1280, 800])
def test_nothing_is_cut_off(page_file, chromium, width):
    context = chromium.new_context(
        offline=True, java_script_enabled=False, viewport={"width": width, "height": 900}
    )
    try:
        page = context.new_page()
        page.goto(page_file.as_uri())
        assert page.evaluate(CUT_OFF) == []
    finally:
        context.close()


def test_text_of_the_drawing_stays_in_its_boxes(chromium, tmp_path):
    from fusionkit.widgets.drawing import DrawnNode, graph_svg

    nodes = [
        DrawnNode("view_25", "view", (), "input", ("input x",)),
        DrawnNode("transformer_blocks_0_attn_norm_added_q_weight", "", (), "input", ("input weight",)),
        DrawnNode("_to_copy_11", "_to_copy(float32)", ("view_25",), notes=("\N{NOT EQUAL TO} 1 argument_order",), differs=True),
        DrawnNode("mul", "mul.Tensor", ("_to_copy_11", "transformer_blocks_0_attn_norm_added_q_weight")),
    ]  # fmt: skip
    path = tmp_path / "drawing.html"
    path.write_text(f"<!doctype html><meta charset='utf-8'>{graph_svg(nodes, 'a site')}", "utf-8")
    context = chromium.new_context(offline=True, java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(path.as_uri())
        assert page.evaluate(OUTSIDE) == []
        assert page.locator("svg text").count() == 1 + 10
    finally:
        context.close()
