"""What the page of a notebook shows first, and how its parameters are listed."""

from __future__ import annotations

import html
import re

import pytest
from nbformat import NotebookNode, v4

from fusionkit.evidence.html import notebook_html

DEFAULTS = 'subject: str = "flux"\nseed: int = 0\npatterns: list[str] = []\nsites: dict[str, int | None] = {"a": None}'
GIVEN = '# Parameters\nsubject = "llama"\nseed = 0\npatterns = []\nsites = {"a": 12, "b": None}\n'
GATES = [
    {"name": "hits", "verdict": "FAIL", "reason": "11 of <12>, 1e-06"},
    {"name": "numbers", "verdict": "PASS", "reason": "all"},
]


def code(
    source: str, *outputs: NotebookNode, tags: tuple[str, ...] = (), count: int | None = 1
) -> NotebookNode:
    cell = v4.new_code_cell(source, outputs=list(outputs), execution_count=count)
    cell.metadata["tags"] = list(tags)
    return cell


def outcome(told: object) -> NotebookNode:
    output = v4.new_output("execute_result", {"text/html": "<p>last</p>"}, execution_count=1)
    output.metadata["text/html"] = {"fusionkit": told}
    return output


def words_of(*cells: NotebookNode) -> str:
    page = notebook_html(v4.new_notebook(cells=[v4.new_markdown_cell("# Title\n\nintro"), *cells]))
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page.split("<body>")[1])).split())


def test_the_verdict_and_its_gates_stand_below_the_first_text():
    words = words_of(
        code("first()"), code("last()", outcome({"verdict": "FAIL", "reason": "r", "gates": GATES}))
    )
    answer = "FAIL gate verdict reason hits FAIL 11 of <12>, 1e-06 numbers PASS all"
    assert words.index("intro") < words.index(answer) < words.index("first ()")


def test_without_gates_the_reason_is_told():
    told = {"verdict": "INCONCLUSIVE", "reason": "nothing was compared", "gates": []}
    assert "intro INCONCLUSIVE nothing was compared" in words_of(code("last()", outcome(told)))


@pytest.mark.parametrize("told", ["PASS", 1, {"gates": "PASS"}, {"gates": [1], "verdict": None}, {}])
def test_metadata_of_any_other_form_breaks_nothing(told):
    assert "last" in words_of(code("x", outcome(told)))


def test_an_error_is_told_with_its_cell():
    error = v4.new_output("error", ename="ValueError", evalue="\x1b[31mno\nway", traceback=["tb"])
    told = v4.new_markdown_cell(
        "An Exception was encountered", metadata={"tags": ["papermill-error-cell-tag"]}
    )
    words = words_of(code("fine()"), told, code("broken()", error))
    assert "intro BROKEN in cell 3: ValueError: no way" in words
    assert "An Exception" not in words


def test_a_notebook_that_stopped_on_the_way_says_where():
    words = words_of(code("one()"), code("two()", count=2), code("three()", count=None))
    assert "BROKEN not run to the end; the last cell that was started is cell 3" in words
    assert "BROKEN" not in words_of(code("one()", count=None))
    assert "BROKEN" not in words_of(code("one()"))


def test_parameters_are_one_list_of_what_was_given():
    page = notebook_html(
        v4.new_notebook(
            cells=[
                v4.new_markdown_cell("# t"),
                code(DEFAULTS, tags=("parameters",)),
                code(GIVEN, tags=("injected-parameters",)),
            ]
        )
    )
    (listed,) = re.findall(r"<dl class=.parameters.>(.*?)</dl>", page)
    items = re.findall(r'<div( class="changed")?><dt>(\w+)</dt> <dd>(.*?)</dd></div>', listed)
    assert [(name, value, bool(changed)) for changed, name, value in items] == [
        ("subject", "llama", True),
        ("seed", "0", False),
        ("sites", "a 12", True),
    ]
    assert "not set: patterns" in listed
    assert "list" not in re.sub(r"<[^>]+>", "", page.split("<body>")[1])  # the cell of the defaults is gone


def test_defaults_are_listed_where_nothing_was_given():
    assert "subject flux seed 0 not set: patterns, sites" in words_of(code(DEFAULTS, tags=("parameters",)))


@pytest.mark.parametrize("source", ["import os", "a.b = 1", "x = f()", "def (", "a, b = 1, 2"])
def test_a_parameter_cell_with_more_than_literals_stays_code(source):
    words = words_of(code(source, tags=("parameters",)))
    assert "".join(source.split()) in "".join(words.split())


def test_long_code_is_folded_and_short_code_is_not():
    page = notebook_html(v4.new_notebook(cells=[code("a\nb\nc\nd"), code("e\nf\ng")]))
    assert page.count("<details") == 1
    assert "code, 4 lines" in page


def test_a_widget_is_replaced_by_a_note():
    view = {"application/vnd.jupyter.widget-view+json": "{}", "text/plain": "VBox()"}
    words = words_of(code("explore()", v4.new_output("display_data", view)))
    assert "interactive in JupyterLab" in words
    assert "VBox" not in words
