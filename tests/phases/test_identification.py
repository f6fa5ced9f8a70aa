"""Phase 11: what it shows and writes, that nothing of the source runs or changes, and when it does not pass."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
import yaml
from identify_examples import HEAD, MLP, NORM, SOFTCAP

from fusionkit.errors import MisuseError
from fusionkit.identify.candidates import Failed
from fusionkit.identify.confirmation import require_confirmation
from fusionkit.identify.ops import OP_NAMES
from fusionkit.phases.identification import REPORT, SCAN, identification_gates, identify_fusion_ops
from fusionkit.verdict import Verdict

DELETES = "import pathlib\n\npathlib.Path(__file__).unlink()\n\n\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.py").write_text(DELETES + HEAD + NORM.format(name="A") + "\n\n" + MLP, "utf-8")
    (tmp_path / "models" / "b.py").write_text(HEAD + NORM.format(name="B") + "\n\n" + SOFTCAP, "utf-8")
    return tmp_path


def identify(folder, **more):
    return identify_fusion_ops(
        paths=["models"], root_dir=str(folder), lang="en", run_dir=str(folder / "run"), **more
    )


@pytest.fixture
def found(folder):
    return identify(folder)


def id_of(found, op):
    return next(item.id for item in found.scan.candidates if item.op == op)


def test_the_rows_show_every_op_every_decision_and_every_choice(found):
    assert [row["Op"] for row in found.summary_rows()] == list(OP_NAMES)
    rows = {row["symbol"]: row for row in found.candidate_rows()}
    assert re.fullmatch(r"a\.py:\d+ \(\+1\)", rows["ARMSNorm"]["place"])
    assert rows["Capped"]["recommend"] == "not recommended"
    assert {row["symbol"] for row in found.order_rows()} == {"ARMSNorm", "MLP"}
    assert any(row["symbol"] == "Capped" and "soft cap" in row["why"] for row in found.refused_rows())
    assert any(
        "ARMSNorm" in row["candidate"] and "npu_rms_norm(" in row["diff"] for row in found.replacement_rows()
    )
    assert len(found.checklist_rows()) == 9
    assert "`" not in "".join(row["evidence"] for row in found.checklist_rows())
    offered = found.choices()
    assert sum(len(ids) for ids in offered.values()) == 3
    assert not any("Capped" in label for label in offered)


def test_the_choice_is_shown_with_ids_that_the_list_does_not_offer(found):
    norms = next(ids for label, ids in found.choices().items() if "ARMSNorm" in label)
    rows = found.choice_rows([*norms, id_of(found, "npu_fusion_attention")])
    assert [row["chosen"] for row in rows if row["ids"] == list(norms)] == [True]
    assert rows[-1] == {"chosen": True, "candidate": None, "ids": [id_of(found, "npu_fusion_attention")],
                        "reason": rows[-1]["reason"]}  # fmt: skip
    assert "soft cap" in rows[-1]["reason"]
    assert sum(row["chosen"] for row in rows) == 2


def test_the_evidence_holds_report_and_scan_and_no_confirmation_until_something_is_chosen(found, folder):
    record = found.write()
    assert {artifact["kind"] for artifact in record.artifacts} == {"report", "scan"}
    assert json.loads((folder / "run" / SCAN).read_text("utf-8"))["schema"] == "fusionkit.scan/1"
    assert not (folder / "run" / "artifacts" / "confirmation.yaml").exists()
    assert (
        "no candidate is confirmed yet"
        in {gate.name: gate.reason for gate in record.gates}["stopped for confirmation"]
    )
    assert not list((folder / "run").rglob("*.html"))


def test_a_choice_is_a_confirmation_of_the_written_report(found, folder):
    chosen = [id_of(found, "npu_swiglu")]
    record = found.write(chosen, "li")
    path = folder / "run" / "artifacts" / "confirmation.yaml"
    confirmed = require_confirmation(path, folder / "run" / REPORT)
    assert confirmed.chosen == tuple(chosen)
    assert confirmed.confirmed_by == "li"
    assert "confirmation" in {artifact["kind"] for artifact in record.artifacts}
    found.write()
    assert not path.exists()  # what is not chosen any more is not confirmed


def test_an_id_that_is_not_there_is_refused_and_leaves_no_confirmation(found, folder):
    with pytest.raises(MisuseError, match="is no candidate"):
        found.write(["npu_swiglu:nowhere.py:MLP"], "li")
    assert not (folder / "run" / "artifacts" / "confirmation.yaml").exists()


def test_nothing_of_the_source_runs_or_changes(folder):
    before = {path: path.read_bytes() for path in (folder / "models").iterdir()}
    identify(folder).write()
    assert {path: path.read_bytes() for path in (folder / "models").iterdir()} == before


def test_a_file_changed_meanwhile_fails_the_phase(found, folder):
    (folder / "models" / "a.py").write_text("x = 1\n", "utf-8")
    record = found.write()
    assert record.verdict is Verdict.FAIL
    assert "1 files changed meanwhile, first" in record.reason


def test_two_runs_leave_the_same_bytes(folder):
    texts = []
    for _ in range(2):
        identify(folder).write()
        texts.append([(folder / "run" / name).read_bytes() for name in (REPORT, SCAN, "phases/11.json")])
    assert texts[0] == texts[1]


def gates(found, proved=True, changed=(), chosen=()):
    return {gate.name: gate for gate in identification_gates(found, proved, changed, chosen)}


def test_gates_say_what_is_missing(found):
    scan, name = found.scan, "recommended replacements proved"
    assert gates(scan, proved=False)[name].verdict is Verdict.INCONCLUSIVE
    assert gates(scan)[name].reason.startswith("0 of 3 proved")
    proved = [
        dataclasses.replace(item, proof={"verdict": "PASS"}) if item.recommend == "yes" else item
        for item in scan.candidates
    ]
    assert gates(dataclasses.replace(scan, candidates=tuple(proved)))[name].verdict is Verdict.PASS
    assert gates(dataclasses.replace(scan, candidates=()))[name].verdict is Verdict.INCONCLUSIVE
    broken = dataclasses.replace(scan, failed=(Failed("x.py", "no Python"),))
    assert gates(broken)["every file read"].verdict is Verdict.INCONCLUSIVE
    assert gates(scan, changed=["a.py"])["no model code changed"].verdict is Verdict.FAIL


def test_paths_and_languages_that_cannot_be_used_are_told(folder):
    with pytest.raises(MisuseError, match="neither a file, a folder nor an installed package"):
        identify_fusion_ops(paths=["no/such/place"], run_dir=str(folder / "run"))
    with pytest.raises(MisuseError, match="reports are written in zh or en"):
        identify_fusion_ops(paths=["models"], root_dir=str(folder), lang="fr", run_dir=str(folder / "run"))


def test_the_parameters_file_selects_this_notebook():
    from pathlib import Path

    root = Path(__file__).resolve().parents[2]
    held = yaml.safe_load((root / "parameters" / "llama-identify.yaml").read_text("utf-8"))
    assert held["notebooks"] == ["11"]
    assert held["prove"] is True
