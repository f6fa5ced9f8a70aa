"""Notebook pairs: the project's own agree and keep the rules; the tool sees each way to go wrong."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "pair_notebooks.py"

SAMPLE = """\
# %% [markdown]
# # A phase
# What it is for.

# %% tags=["parameters"]
subject: str = "flux"
expected_sites: dict[str, int] = {"rms_norm": -1}  # an assertion besides the count
patterns: list[str] = []

# %%
from fusionkit.widgets import html_table, show, site_explorer

rows = [{"pattern": name, "status": "hit"} for name in patterns]
site_explorer(rows)

# %%
show(html_table(rows))

# %%
evidence.write_phase(1, rows)
"""
WRITE = "# %%\nwrite_phase()\n"
PARAMETERS = '# %% tags=["parameters"]\n'


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(TOOL.parent)
    return importlib.import_module("pair_notebooks")


@pytest.fixture
def folder(tmp_path, tool):
    (tmp_path / "01_sample.py").write_text(SAMPLE, "utf-8")
    assert tool.main([str(tmp_path)]) == 0
    return tmp_path


def test_the_projects_notebooks_agree_with_their_sources_and_keep_the_rules(tool):
    assert tool.problems(ROOT / "notebooks") == []


def test_a_generated_pair_is_accepted(tool, folder):
    assert tool.problems(folder) == []
    assert tool.main(["--check", str(folder)]) == 0


def test_the_generated_notebook_is_what_jupyter_and_papermill_expect(folder):
    notebook = nbformat.read(folder / "01_sample.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert notebook.metadata.language_info.name == "python"
    assert [cell.metadata.get("tags") for cell in notebook.cells] == [None, ["parameters"], None, None, None]
    assert [cell.id for cell in notebook.cells] == [f"cell-0{n}" for n in range(1, 6)]
    assert notebook.cells[0].source == "# A phase\nWhat it is for."
    assert all(cell.outputs == [] for cell in notebook.cells if cell.cell_type == "code")


def test_generating_again_gives_the_same_bytes_and_writes_nothing(tool, folder, capsys):
    pair = folder / "01_sample.ipynb"
    before, time = pair.read_bytes(), pair.stat().st_mtime_ns
    capsys.readouterr()
    assert tool.main([str(folder)]) == 0
    assert (pair.read_bytes(), pair.stat().st_mtime_ns) == (before, time)
    assert capsys.readouterr().out == ""
    pair.unlink()
    assert tool.main([str(folder)]) == 0
    assert pair.read_bytes() == before
    assert b"jupytext" not in before


def edit_notebook(folder: Path, change) -> None:
    pair = folder / "01_sample.ipynb"
    notebook = json.loads(pair.read_text("utf-8"))
    change(notebook)
    pair.write_text(json.dumps(notebook), "utf-8")


OUTPUT = {"output_type": "stream", "name": "stdout", "text": "12"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda n: n["cells"][2].update(outputs=[OUTPUT], execution_count=None), "holds output"),
        (lambda n: n["cells"][2].update(execution_count=3), "holds output"),
        (lambda n: n["cells"][3].update(source="show(rows)"), "differs from the source in cell 4"),
        (lambda n: n["cells"][1]["metadata"].clear(), "differs from the source in cell 2"),
        (lambda n: n["cells"].pop(), "has 4 cells, the source 5"),
        (lambda n: n["metadata"].clear(), "in its metadata or cell ids"),
        (lambda n: n["cells"][0].update(id="other"), "in its metadata or cell ids"),
    ],
)
def test_each_kind_of_drift_is_named_and_repaired(tool, folder, capsys, change, said):
    edit_notebook(folder, change)
    assert tool.main(["--check", str(folder)]) == 1
    line = capsys.readouterr().err
    assert line.startswith("01_sample.py: 01_sample.ipynb")
    assert said in line
    assert line.count("\n") == 1
    assert tool.main([str(folder)]) == 0
    assert tool.problems(folder) == []


def test_a_changed_source_is_drift(tool, folder):
    (folder / "01_sample.py").write_text(SAMPLE.replace('"hit"', '"miss"'), "utf-8")
    (line,) = tool.problems(folder)
    assert "differs from the source in cell 3" in line


def test_a_missing_pair_a_missing_source_and_an_unreadable_pair_are_named(tool, folder):
    pair = folder / "01_sample.ipynb"
    pair.write_text("{", "utf-8")
    assert "is not a notebook" in tool.problems(folder)[0]
    pair.rename(folder / "02_other.ipynb")
    missing, orphan = tool.problems(folder)
    assert "has no pair 01_sample.ipynb" in missing
    assert "02_other.ipynb: has no source 02_other.py" in orphan


def test_a_folder_without_notebooks_is_no_success(tool, tmp_path):
    assert tool.main(["--check", str(tmp_path)]) == 1


def test_the_command_names_the_file_and_exits_1(folder):
    edit_notebook(folder, lambda notebook: notebook["cells"].pop())
    done = subprocess.run(
        [sys.executable, TOOL, "--check", folder], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 1
    assert "01_sample.ipynb" in done.stderr
    assert "make notebooks" in done.stderr


def rules(tool, tmp_path: Path, source: str) -> list[str]:
    path = tmp_path / "rule.py"
    path.write_text(source, "utf-8")
    path.with_suffix(".ipynb").write_text(tool.generate(path), "utf-8")
    return [line.removeprefix("rule.py: ") for line in tool.problems(tmp_path)]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def f():\n    return 1", "def"),
        ("async def f():\n    return 1", "async def"),
        ("class A:\n    pass", "class"),
        ("f = lambda: 1", "lambda"),
        ("if rows:\n    for row in rows:\n        print(row)", "for"),
        ("while True:\n    break", "while"),
        ("try:\n    pass\nfinally:\n    pass", "try"),
        ("try:\n    pass\nexcept* ValueError:\n    pass", "try"),
    ],
)
def test_logic_in_a_cell_is_refused(tool, tmp_path, code, said):
    (line,) = rules(
        tool, tmp_path, SAMPLE.replace("show(html_table(rows))", f"show(html_table(rows))\n{code}")
    )
    assert line.startswith("cell 4 line ")
    assert f": {said} in a notebook" in line


@pytest.mark.parametrize(
    "code", ["total = sum(len(row) for row in rows)", "if rows:\n    show(rows)", "with x as y:\n    show(y)"]
)
def test_expressions_if_and_with_are_allowed(tool, tmp_path, code):
    assert (
        rules(tool, tmp_path, SAMPLE.replace("show(html_table(rows))", f"show(html_table(rows))\n{code}"))
        == []
    )


@pytest.mark.parametrize(
    "parameter",
    [
        'subject = "flux"',
        "subject: str",
        "subject: str = name",
        "sizes: dict = {'a': {'b': 1}}",
        "sizes: list = [{'a': 1}]",
        "import os",
        "box.size: int = 1",
    ],
)
def test_a_parameter_that_is_no_annotated_literal_is_refused(tool, tmp_path, parameter):
    (line,) = rules(tool, tmp_path, SAMPLE.replace(PARAMETERS, f"{PARAMETERS}{parameter}\n"))
    assert line.startswith("cell 2 line 1: a parameter is")


@pytest.mark.parametrize("tags", ["", ' tags=["parameters"]\na: int = 1\n\n# %% tags=["parameters"]'])
def test_other_than_one_parameters_cell_is_refused(tool, tmp_path, tags):
    (line,) = rules(tool, tmp_path, SAMPLE.replace(' tags=["parameters"]', tags))
    assert line.endswith("cells tagged parameters, exactly one expected")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("# # A phase\n# What", "# What", "first cell is not markdown"),
        ("# %% [markdown]\n# # A phase\n# What it is for.", "# %%\nx = 1", "first cell is not markdown"),
        ("evidence.write_phase(1, rows)", "evidence.write_phase", "does not write the evidence"),
        ("evidence.write_phase(1, rows)", "write_phase(\n\n# %%\nrows", "not Python"),
        ("show(html_table(rows))", "rows", "cell 3: no static table or picture follows the widget"),
        ("# %%\nshow", "# %%\n1\n\n# %%\n" * 10 + "show", "cells, at most 14 allowed"),
    ],
)
def test_each_other_rule_is_seen_when_broken(tool, tmp_path, before, after, said):
    assert before in SAMPLE
    assert any(said in line for line in rules(tool, tmp_path, SAMPLE.replace(before, after)))
