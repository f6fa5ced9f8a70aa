"""fusionkit scan with a report: language, profile and proof come from the command line."""

from __future__ import annotations

import json

import pytest
from identify_examples import HEAD, MLP, NORM, SOFTCAP

from fusionkit.cli import main
from fusionkit.identify.confirmation import report_ids


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(HEAD + NORM.format(name="A") + "\n\n" + MLP + "\n\n" + SOFTCAP, "utf-8")
    return path


def test_the_report_is_written_in_the_language_asked_for(model, tmp_path, capsys):
    assert main(["scan", str(model), "--no-cache", "--out", str(tmp_path / "zh.md")]) == 0
    assert main(["scan", str(model), "--no-cache", "--lang", "en", "--out", str(tmp_path / "en.md")]) == 0
    assert (tmp_path / "zh.md").read_text("utf-8").startswith("# 融合算子识别报告\n")
    assert (tmp_path / "en.md").read_text("utf-8").startswith("# Fused-op identification report\n")
    ids = [f"{op}:model.py:{symbol}" for op, symbol in
           (("npu_rms_norm", "ARMSNorm"), ("npu_swiglu", "MLP"), ("npu_fusion_attention", "Capped"))]  # fmt: skip
    assert list(report_ids(tmp_path / "zh.md")) == list(report_ids(tmp_path / "en.md")) == ids
    assert "3 candidates" in capsys.readouterr().out


def test_a_profile_is_taken_in_and_a_wrong_one_is_one_line(model, tmp_path, capsys):
    rows = "Name,Type,Accelerator Core,Duration(us)\na,Swish,AI_VECTOR_CORE,20\nb,Mul,AI_VECTOR_CORE,20\n"
    (tmp_path / "kernel_details.csv").write_text(rows, "utf-8")
    out = ["--lang", "en", "--out", str(tmp_path / "r.md"), "--profile"]
    assert main(["scan", str(model), "--no-cache", *out, str(tmp_path / "kernel_details.csv")]) == 0
    assert "| Swish, Mul | 1 | 40.0 | 100.0% |" in (tmp_path / "r.md").read_text("utf-8")
    capsys.readouterr()
    assert main(["scan", str(model), "--no-cache", *out, str(tmp_path / "none.csv")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_proofs_stand_in_report_and_json(model, tmp_path, capsys):
    wanted = ["--op", "npu_rms_norm", "--prove", "--json", "--lang", "en", "--out", str(tmp_path / "r.md")]
    assert main(["scan", str(model), "--no-cache", *wanted]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["candidates"]
    assert entry["proof"]["verdict"] == "PASS", entry["proof"]["reason"]
    assert entry["recommend"] == "yes"
    text = (tmp_path / "r.md").read_text("utf-8")
    assert "**PASS**" in text
    assert "| bfloat16 / bfloat16 | PASS |" in text
