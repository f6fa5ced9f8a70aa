"""The phases on Llama: what each says, and when it refuses to go on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from shared_models import ALL
from trial_files import write_trial

from fusionkit.errors import MisuseError
from fusionkit.evidence.phase_records import compared_nothing
from fusionkit.patterns.swiglu_pattern import SwigluPatternGroup
from fusionkit.phases.analyze import analyze, path_for
from fusionkit.phases.create import create
from fusionkit.phases.integrate import integrate
from fusionkit.phases.mismatch import debug_mismatch
from fusionkit.phases.reduce_copies import reduce_copies
from fusionkit.phases.register import register
from fusionkit.phases.study import open_study
from fusionkit.phases.unit import UNIT_PASS_IS_NO_HIT, verify_unit
from fusionkit.verdict import Verdict


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def llama(run_dir):
    return open_study(subject="llama", run_dir=str(run_dir))


def open_trial(tmp_path, **changes):
    fields = {"subject": "flux", "patterns": ["rms_norm"], "run_dir": str(tmp_path / "run")} | changes
    return open_study(**fields)


def test_1_candidates_sources_and_parameters(llama):
    found = analyze(llama)
    rows = {row.pattern: row for row in found.candidates}
    assert {name for name, row in rows.items() if row.decision == "go"} == {"rms_norm", "rope", "swiglu"}
    assert rows["gelu"].decision == "rejected"
    assert rows["gelu"].reason == "no independent counter for this model"
    assert rows["rms_norm"].forecast.startswith("fewer kernels")
    assert any("def apply_rotary_pos_emb" in item.text for item in found.fragments)
    weights = [row for row in found.parameters if row["argument"] == "weight"]
    assert weights[0]["before-freezing"] == "placeholder"
    assert {gate.verdict for gate in found.gates} == {Verdict.PASS}
    record = found.write()
    assert {a["kind"] for a in record.artifacts} == {"graph", "capsule"}


def test_1_the_api_stage_has_to_be_told_on_an_npu(llama):
    import dataclasses

    from fusionkit.phases.analyze import _api_stage

    on_npu = dataclasses.replace(llama, target="npu")
    assert _api_stage(on_npu, "").verdict is Verdict.INCONCLUSIVE
    assert _api_stage(on_npu, "passed: see run 12").verdict is Verdict.PASS
    assert _api_stage(llama, "").reason.startswith("does not apply")


def test_2_reuses_what_hits_and_modifies_nothing(llama):
    creation = create(llama)
    assert {row["decision"] for row in creation.rows} == {"reuse"}
    assert creation.files == ()
    assert creation.write().verdict is Verdict.PASS


def test_2_drafts_a_file_where_the_existing_pattern_misses(tmp_path):
    """A subject whose norm has no pattern: the draft is a pattern file that loads and hits that site."""
    import torch
    from torch import nn

    from fusionkit.match.explanation.missing import explain_missing
    from fusionkit.match.matching import matching_of
    from fusionkit.match.repairing.synthesis import draft_pattern
    from fusionkit.passes.compiled import compile_subject
    from fusionkit.passes.trial import trial_groups
    from fusionkit.subjects.build import Subject

    class OddNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.rand(16) + 0.5)

        def forward(self, x):
            return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.gain

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = OddNorm()
            self.linear = nn.Linear(16, 16)

        def forward(self, x):
            return self.linear(self.norm(self.linear(x)))

    subject = Subject(Model(), (torch.randn(2, 4, 16),), {"rms_norm": 1}, name="odd")
    matching = matching_of(compile_subject(subject, ALL))
    explained = explain_missing(matching, "rms_norm", ["norm"])[0]
    text = draft_pattern(matching.graphs[0], explained.anchor, model="odd", op="rms_norm")
    path = tmp_path / "odd_rms_norm_pattern.py"
    path.write_text(text)
    groups = trial_groups(path)
    assert list(groups) == ["rms_norm"]  # its replacement is npu_rms_norm, which was measured to be equal
    from fusionkit.config import CompilationConfig, select_patterns

    config = CompilationConfig(fusion_patterns=select_patterns(()), pattern_files=(str(path),))
    again = compile_subject(subject, config)
    assert [(m.status, m.module) for m in again.matches] == [("hit", "norm")]


def test_3_registered_patterns_need_no_edit_here_and_three_elsewhere(llama):
    registration = register(llama)
    assert registration.diff_text("fusionkit") == "nothing to add: registered already\n"
    assert registration.diff_text("mindiesd").count("\n+") >= 3 * 3
    assert registration.write().verdict is Verdict.PASS


def test_3_a_trial_is_written_only_into_the_given_checkout(tmp_path):
    study = open_trial(tmp_path, pattern_file=str(write_trial(tmp_path)))
    shown = register(study)
    assert shown.applied == ()
    assert "+    enable_trial_rms_norm: bool = True" in shown.diff_text("fusionkit")
    assert {gate.name: gate.verdict for gate in shown.gates}["names from one name"] is Verdict.PASS

    from fusionkit.passes.registration import _EMPTY, LAYOUTS

    for kind in ("exports", "registry", "flags"):
        path = tmp_path / "checkout" / getattr(LAYOUTS["mindiesd"], kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_EMPTY[kind])
    applied = register(study, checkout=str(tmp_path / "checkout"), old_name="TrialNorm")
    assert len(applied.applied) == 4
    assert {gate.verdict for gate in applied.gates} == {Verdict.PASS}
    stale = register(study, checkout=str(tmp_path / "checkout"), old_name="TrialRmsNorm")
    assert {gate.name: gate.verdict for gate in stale.gates}["old name gone"] is Verdict.FAIL


def test_3_an_unreachable_pattern_stops_here(llama, monkeypatch):
    import fusionkit.phases.register as phase

    monkeypatch.setattr(phase, "unreachable", lambda: ["flag enable_gelu has no registry entry"])
    assert register(llama).write().verdict is Verdict.FAIL


def test_4_says_that_a_unit_pass_is_no_hit(llama):
    unit = verify_unit(llama)
    assert unit.write().verdict is Verdict.PASS
    assert UNIT_PASS_IS_NO_HIT in unit.gates[1].reason
    assert {row["pattern"] for row in unit.matches} == {"rms_norm", "rope", "swiglu"}


def test_4_writes_a_two_layer_test_file_that_passes(llama, run_dir):
    verify_unit(llama).write()
    path = run_dir / "artifacts/tests/test_swiglu_pattern.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert f"{10 * len(SwigluPatternGroup)} passed" in done.stdout


def test_4_a_unit_miss_is_inconclusive_and_goes_on(tmp_path):
    study = open_trial(tmp_path, pattern_file=str(write_trial(tmp_path, eps="1e-6")))
    record = verify_unit(study).write()
    assert record.verdict is Verdict.INCONCLUSIVE
    assert "missed rms_norm in" in record.reason


def test_5_names_the_literal_and_both_values(tmp_path):
    study = open_trial(tmp_path, pattern_file=str(write_trial(tmp_path, eps="1e-6")))
    report = debug_mismatch(study)
    record = report.write()
    assert record.verdict is Verdict.INCONCLUSIVE
    for word in ("scalar_literal", "1e-06", "9.999999974752427e-07", "0 hits of 12 sites"):
        assert word in record.reason
    missed = report.explained["rms_norm"]
    assert len(missed) == 12
    assert {cause.type for site in missed for cause in site.causes} == {"scalar_literal"}
    explained = json.loads((study.run_dir / "artifacts/05_explained.json").read_text())
    assert len(explained["rms_norm"]) == 12
    refused = integrate(study).write()
    assert refused.verdict is Verdict.FAIL
    assert [gate.name for gate in refused.gates] == ["hits"]
    assert reduce_copies(study).gates[0].reason == "not run: phase 6 failed"


def test_5_a_miss_without_a_cause_fails(llama, monkeypatch):
    import fusionkit.phases.mismatch as phase
    from fusionkit.subjects.site_counts import ExpectedCount, ExpectedSite

    counts = dict(llama.counts)
    extra = ExpectedSite("swiglu", "model.norm", "f.py:1", "f.py:1", 2)
    counts["swiglu"] = ExpectedCount("swiglu", (*counts["swiglu"].sites, extra), None, True)
    import dataclasses

    wrong = dataclasses.replace(llama, counts=counts)
    monkeypatch.setattr(phase, "explain_missing", lambda *_: [])
    record = debug_mismatch(wrong).write()
    assert record.verdict is Verdict.FAIL
    assert "no cause found" in record.reason


def test_6_and_7_pass_on_llama(llama):
    record = integrate(llama).write()
    assert record.verdict is Verdict.PASS, record.reason
    assert [gate.name for gate in record.gates] == [
        "hits",
        "kernels",
        "numbers per site",
        "whole model in float32",
        "benefit kind",
    ]
    copies = reduce_copies(llama)
    assert copies.write().verdict is Verdict.PASS
    assert all(set(row) == {"previous", "copy", "next", "count"} for row in copies.pair_rows())


def test_6_an_asserted_number_that_is_not_met_names_both(llama):
    import dataclasses

    record = integrate(dataclasses.replace(llama, asserted={"rms_norm": 6})).write()
    assert record.verdict is Verdict.FAIL
    assert "says 6, 5 were found" in record.reason


def test_7_no_copies_without_a_hit_are_no_pass(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "commands"))
    study = open_trial(tmp_path, subject="small_models:without_sites", patterns=[])
    record = integrate(study).write()
    assert record.verdict is Verdict.INCONCLUSIVE
    assert compared_nothing(record.to_dict())
    (gate,) = reduce_copies(study).gates
    assert gate.verdict is Verdict.INCONCLUSIVE
    assert gate.reason.startswith("copies 0 -> 0; no rise; no pattern hit, so no fused graph was compared")


def test_1_and_5_pass_on_a_count_of_the_author_alone(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "commands"))
    study = open_trial(tmp_path, subject="small_models:declared", patterns=[])
    found = analyze(study)
    assert {gate.verdict for gate in found.gates} == {Verdict.PASS}, found.gates
    own, library = sorted(found.fragments, key=lambda item: item.modules)
    assert (own.qualname, own.modules) == ("small_models.KitNorm.forward", ("0", "2"))
    assert own.text.startswith("    def forward(self, x):\n")
    assert own.text.endswith("h.to(x.dtype)\n")
    assert {(item.name, item.kind) for item in own.parameters} == {
        ("self.gain", "module_parameter"),
        ("x", "function_input"),
    }
    assert library.modules == ("1",)
    assert {gate.verdict for gate in debug_mismatch(study).gates} == {Verdict.PASS}


def test_7_is_not_run_without_phase_6(tmp_path):
    study = open_trial(tmp_path, subject="llama")
    assert reduce_copies(study).gates[0].verdict is Verdict.INCONCLUSIVE


def test_the_path_rule():
    import torch
    from shared_models import small_subject

    from fusionkit.match.matching import matching_of
    from fusionkit.passes.compiled import compile_subject

    static = matching_of(compile_subject(small_subject(), ALL))
    assert path_for(static.matches, static.graphs) == "register_replacement"
    subject = small_subject()
    torch._dynamo.mark_dynamic(subject.inputs[0], 1)
    dynamic = matching_of(compile_subject(subject, ALL))
    assert (
        path_for(dynamic.matches, dynamic.graphs) == "register_replacement"
    )  # symbolic outside the chain only


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patterns": ["gellu"]}, "unknown pattern 'gellu'"),
        ({"subject": "fluxx"}, "fluxx"),
        ({"target": "gpu"}, "target 'gpu' is unknown"),
        ({"dtype": "int4"}, "int4"),
        ({"pattern_file": "/nowhere/x.py"}, "cannot read"),
    ],
)
def test_bad_parameters_are_one_line(tmp_path, changes, message):
    with pytest.raises(MisuseError, match=message) as caught:
        open_trial(tmp_path, **changes)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
