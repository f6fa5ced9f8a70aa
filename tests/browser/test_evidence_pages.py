"""The pages of a real run are whole and readable without network and JavaScript; hostile notebooks change nothing."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from nbformat import v4

from fusionkit.errors import FusionKitError
from fusionkit.run import run_parameters

pytestmark = [pytest.mark.browser, pytest.mark.notebook]

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("01_analyze_model.html", "05_debug_mismatch.html", "index.html")
NOISE = ("USDT:", "<Figure", "<IPython", "VBox(", "Warning", "should be kept in float32", "Out[", "In [")

# Tables and preformatted text that are wider than the room they are shown in, and the page itself.
CUT_OFF = """() => [document.documentElement,
    ...document.querySelectorAll('[role=region], pre, .output_subarea, .celltag_verdict')]
  .filter((e) => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1)
  .map((e) => `${e.localName}.${e.className}: ${e.innerText.slice(0, 60)}`)"""


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_whole_without_network_and_javascript(finished_run, open_archived, name):
    page = open_archived(finished_run / name)
    page.assert_whole()
    assert all(table["rows"] > 1 for table in page.tables)
    assert [noise for noise in NOISE if noise in page.text] == []
    assert "nothing to show" not in page.text


def test_these_are_all_pages_of_the_run(finished_run):
    phases = [path.with_suffix(".html").name for path in (ROOT / "notebooks").glob("0*.ipynb")]
    assert set(PAGES) <= {*phases, "index.html"}
    assert sorted(path.name for path in finished_run.rglob("*.html")) == sorted([*phases, "index.html"])


@pytest.mark.parametrize("width", [1280, 800])
@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_off(finished_run, chromium, name, width):
    context = chromium.new_context(
        offline=True, java_script_enabled=False, viewport={"width": width, "height": 900}
    )
    try:
        page = context.new_page()
        page.goto((finished_run / name).as_uri())
        assert page.evaluate(CUT_OFF) == []
    finally:
        context.close()


@pytest.mark.parametrize("number", ["01", "05"])
def test_question_answer_and_parameters_come_before_the_rest(finished_run, open_archived, number):
    (path,) = finished_run.glob(f"{number}_*.html")
    phase = json.loads((finished_run / "phases" / f"{number}.json").read_text("utf-8"))
    page = open_archived(path)
    answer = page.tables[0]["text"]
    assert page.text.index("Question:") < page.text.index(answer) < page.text.index("subject llama")
    for gate in phase["gates"]:
        for told in (gate["name"], gate["verdict"], gate["reason"]):
            assert told in answer
    assert page.text.index("subject llama") < 1500
    assert "expected_sites: dict" not in page.text  # the parameter cell is folded


def test_pages_and_index_lead_to_one_another(finished_run, chromium):
    context = chromium.new_context(offline=True, java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto((finished_run / "index.html").as_uri())
        assert "7 notebooks: 7 PASS" in page.inner_text("main")
        page.click("text=05_debug_mismatch")
        assert "no site was missed: all 11 are hit, already fused or skipped" in page.inner_text("main")
        page.click("nav a")
        assert page.url.endswith("/index.html")
    finally:
        context.close()


def test_folded_code_opens_without_javascript(finished_run, chromium):
    context = chromium.new_context(offline=True, java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto((finished_run / "05_debug_mismatch.html").as_uri())
        code = page.locator("details.code", has_text="open_study")
        assert not code.locator("pre").is_visible()
        code.locator("summary").click()
        assert code.locator("pre").is_visible()
    finally:
        context.close()


HOSTILE = '"><img src=x onerror="document.title=1"><script src="https://host.invalid/x.js"></script>'
MARKDOWN = f"""\
# Hostile {HOSTILE}

![far](https://host.invalid/far.png) <img src="http://host.invalid/a.png" alt="a picture from far">

<style>body {{ background: url(https://host.invalid/b.png) }}</style><iframe src="https://host.invalid"></iframe>
<div onclick="alert(1)"><table><tr><td>left open in markdown
"""
SHOWN = f"""\
from IPython.display import HTML, Javascript, display
from fusionkit.widgets import bar_chart_svg, html_table, show, views
hostile = {HOSTILE!r}
print(hostile)
display(Javascript("document.body.innerHTML = ''"))
display(HTML("<table><tr><td>left open<td><!-- " + hostile))
display(show(bar_chart_svg([{{"k": hostile, "n": 1}}], "k", ["n"], title=hostile)))
show(html_table([{{hostile: hostile, "verdict": hostile, "list": [hostile]}}], caption=hostile))
"""
OUTCOME = """\
from pathlib import Path
from fusionkit.evidence.gates import Gate
from fusionkit.evidence.phase_records import PhaseRecord, write_phase
from fusionkit.verdict import Verdict
record = PhaseRecord(
    phase=1, notebook="01_hostile", subject=hostile, target="cpu", window="before-freezing", dtype="bfloat16",
    gates=[Gate(hostile, Verdict.PASS, hostile)],
)
write_phase(Path(run_dir), record)
views.outcome(record)
"""


def run_hostile(investigation, *cells: str) -> Path:
    """Run a notebook with hostile markdown and these cells after it."""
    path = investigation.add("01_hostile", *cells, last=False)
    node = nbformat.read(path, as_version=4)
    node.cells[0] = v4.new_markdown_cell(MARKDOWN, id="cell-0")
    nbformat.write(node, path)
    run_parameters(investigation.yaml, out=investigation.out, notebooks_dir=investigation.notebooks)
    return investigation.out


def test_hostile_markdown_and_outputs_stay_text(investigation, open_archived):
    out = run_hostile(investigation, SHOWN, OUTCOME)
    page = open_archived(out / "01_hostile.html")
    page.assert_whole()
    assert [picture["kind"] for picture in page.pictures] == ["svg"]
    assert page.text.count(HOSTILE) >= 6  # stdout, chart, caption, head, cells, the answer's gate
    assert "[image: a picture from far]" in page.text
    assert "left open in markdown" in page.text
    index = open_archived(out / "index.html")
    index.assert_whole()
    assert "<script" not in (out / "01_hostile.html").read_text("utf-8")


def test_a_hostile_error_is_told_and_stays_text(investigation, open_archived):
    with pytest.raises(FusionKitError):
        run_hostile(investigation, f"raise ValueError({HOSTILE!r})", "print('never')")
    page = open_archived(investigation.out / "01_hostile.partial.html")
    assert page.requests == page.sources == []
    assert page.pictures == []
    assert f"BROKEN in cell 4: ValueError: {HOSTILE}" in page.text
    assert page.text.index("Hostile") < page.text.index("BROKEN") < page.text.index("never")
    assert "An Exception was encountered" not in page.text
    index = open_archived(investigation.out / "index.html")
    index.assert_whole()
    assert HOSTILE in index.text
