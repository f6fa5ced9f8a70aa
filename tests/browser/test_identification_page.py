"""Notebook 11: its page without network and JavaScript, and the choice that a person makes in JupyterLab."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from identify_examples import HEAD, MLP, NORM, SOFTCAP

from fusionkit.identify.confirmation import require_confirmation

pytestmark = [pytest.mark.browser, pytest.mark.notebook]

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "11_identify_fusion_ops.ipynb"


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "models" / "model.py"
    path.parent.mkdir()
    path.write_text(HEAD + NORM.format(name="A") + "\n\n" + MLP + "\n\n" + SOFTCAP, "utf-8")
    return path


def test_the_page_of_a_run_is_whole(model, tmp_path, open_archived):
    parameters = tmp_path / "identify.yaml"
    parameters.write_text(
        'notebooks: ["11"]\npaths: [models]\nroot_dir: .\nlang: en\nprove: true\nchosen: ["npu_swiglu:model.py:MLP"]\n'
    )
    out = tmp_path / "run"
    command = [sys.executable, "-m", "fusionkit.cli", "run", str(parameters), "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = open_archived(out / "11_identify_fusion_ops.html")
    page.assert_whole()
    assert "npu_rms_norm(" in page.text
    assert "stopped for confirmation" in page.text
    chosen = next(table["text"] for table in page.tables if "Selectable and chosen" in table["text"])
    assert [line.split("\t")[0] for line in chosen.splitlines() if "npu_" in line and "\t" in line].count(
        "True"
    ) == 1
    assert require_confirmation(
        out / "artifacts" / "confirmation.yaml", out / "artifacts" / "11_report.md"
    ).chosen


def test_a_person_chooses_and_confirms(model, lab, open_notebook):
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    run = lab.folder / "run"
    given = {"paths": [str(model)], "lang": "en", "run_dir": str(run), "confirmed_by": "li"}
    (cell,) = [cell for cell in notebook["cells"] if "parameters" in cell["metadata"].get("tags", [])]
    cell["source"] = (
        "".join(cell["source"]) + "\n" + "\n".join(f"{name} = {value!r}" for name, value in given.items())
    )
    (lab.folder / "identify.ipynb").write_text(json.dumps(notebook), "utf-8")
    page = open_notebook("identify.ipynb", timeout_s=120)
    confirmation = run / "artifacts" / "confirmation.yaml"
    assert (run / "artifacts" / "11_report.md").is_file()
    assert not confirmation.exists()
    chooser = page.locator(".widget-select-multiple select").first
    chooser.scroll_into_view_if_needed()
    labels = chooser.locator("option").all_inner_texts()
    assert not any("Capped" in label for label in labels)
    chooser.select_option(label=next(label for label in labels if "MLP" in label))
    page.locator("text=1 chosen").wait_for()
    last = page.locator(".jp-CodeCell").last
    last.scroll_into_view_if_needed()
    last.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    page.locator("text=artifacts/confirmation.yaml").wait_for()
    confirmed = require_confirmation(confirmation, run / "artifacts" / "11_report.md")
    assert confirmed.chosen == ("npu_swiglu:model.py:MLP",)
    assert confirmed.confirmed_by == "li"
