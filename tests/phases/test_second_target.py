"""The second target beside the investigation's own: what is told where it is there, and where it is not."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess

import pytest

from fusionkit.capture.capsule import write_capsule
from fusionkit.capture.counted import with_counts
from fusionkit.errors import MisuseError
from fusionkit.evidence.verify import recheck_phase
from fusionkit.phases.analyze import analyze
from fusionkit.phases.integrate import COMPILED_PROFILE, EAGER_PROFILE, given_profiles, integrate
from fusionkit.phases.integration_gates import second_hits_gate
from fusionkit.phases.reduce_copies import reduce_copies
from fusionkit.phases.second_target import capsule_path, capture_on
from fusionkit.phases.study import open_study
from fusionkit.store import read_json, write_json
from fusionkit.verdict import Verdict


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Llama on cpu; a capsule of the same compile stands where npu-dry's would."""
    study = open_study(
        subject="llama", patterns=["rms_norm", "rope"], run_dir=str(tmp_path_factory.mktemp("run"))
    )
    capture = with_counts(study.compile_plain().capture(), study.model.model, study.counts)
    write_capsule(dataclasses.replace(capture, target="npu-dry"), study.run_dir / capsule_path("npu-dry"))
    return study


@pytest.fixture(scope="module")
def integration(study):
    return integrate(study, None, "npu-dry")


def elsewhere(study, tmp_path):
    """The same study with an empty run folder."""
    return dataclasses.replace(study, run_dir=tmp_path)


@pytest.mark.parametrize("target", [None, "cpu"])
def test_no_second_target_where_none_or_the_same_is_asked_for(study, target):
    assert capture_on(study, target) is None


def test_a_target_that_is_not_there_is_inconclusive_with_doctors_reason(study, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    found = analyze(elsewhere(study, tmp_path), "", "npu-dry")
    gate = found.gates[-1]
    assert (gate.name, gate.verdict) == ("npu-dry", Verdict.INCONCLUSIVE)
    assert gate.reason.startswith("target npu-dry needs a C compiler and finds none")
    assert found.why_no_difference() == gate.reason
    second = capture_on(elsewhere(study, tmp_path), "npu-dry")
    assert second_hits_gate(second, None).verdict is Verdict.INCONCLUSIVE
    assert found.write().verdict is Verdict.INCONCLUSIVE


def test_a_capture_that_a_signal_ends_names_it(study, tmp_path, monkeypatch):
    def run(command, **_options):
        return subprocess.CompletedProcess(command, -6, "", "terminate called\n")

    monkeypatch.setattr("fusionkit.phases.second_target.subprocess.run", run)
    second = capture_on(elsewhere(study, tmp_path), "npu-dry")
    assert (second.capture, second.reason) == (None, "the capture ended with SIGABRT")


def test_phase_1_compares_the_graphs(study):
    found = analyze(study, "", "npu-dry")
    assert found.gates[-1].name == "npu-dry"
    assert found.gates[-1].verdict is Verdict.PASS
    assert "9 hit in both" in found.gates[-1].reason
    assert found.graph_rows()[-1]["target"] == "npu-dry"
    assert found.op_rows() == found.site_rows() == []  # it is the same compile


def test_phase_6_counts_hits_on_both_and_bears_them_out(study, integration):
    assert [row["target"] for row in integration.hit_rows()] == ["cpu", "cpu", "npu-dry", "npu-dry"]
    gate = next(gate for gate in integration.gates if gate.name == "hits on npu-dry")
    assert gate.verdict is Verdict.PASS
    integration.write()
    phase = read_json(study.run_dir / "phases/06.json")
    assert recheck_phase(study.run_dir, phase) == []
    path = study.run_dir / "artifacts/06_hits_npu-dry.json"
    entry = read_json(path)
    forged = read_json(path)
    forged["report"]["patterns"]["rms_norm"]["hits"] = 6
    write_json(path, forged)
    assert any("rms_norm: hits" in finding.what for finding in recheck_phase(study.run_dir, phase))
    write_json(path, entry)
    phase["gates"][1]["verdict"] = "INCONCLUSIVE"
    assert any("says INCONCLUSIVE" in finding.what for finding in recheck_phase(study.run_dir, phase))


def test_a_miss_on_the_second_target_fails_the_phase(study, tmp_path):
    own = elsewhere(study, tmp_path)
    capsule = read_json(study.run_dir / capsule_path("npu-dry"))
    for node in capsule["graphs"][0]["nodes"]:
        if node["target"] == "aten.rsqrt.default":
            node["target"] = "aten.sqrt.default"
            break
    write_json(tmp_path / capsule_path("npu-dry"), capsule)
    found = integrate(own, None, "npu-dry")
    gate = found.gates[1]
    assert gate.verdict is Verdict.FAIL
    assert "4 hits of 5 sites" in gate.reason
    assert found.diff is None
    assert found.why_empty("kernels") == "not run: the gate 'hits on npu-dry' failed"


def test_given_profiles_take_the_place_of_the_processs_own(study, integration, tmp_path):
    source = study.run_dir
    own = elsewhere(study, tmp_path)
    given = given_profiles(str(source / EAGER_PROFILE), str(source / COMPILED_PROFILE))
    found = integrate(own, given)
    kernels = next(gate for gate in found.gates if gate.name == "kernels")
    assert kernels.verdict is Verdict.PASS
    assert "CPU" not in found.benefit
    assert (tmp_path / EAGER_PROFILE).read_bytes() == (source / EAGER_PROFILE).read_bytes()
    swapped = integrate(own, given_profiles(str(source / COMPILED_PROFILE), str(source / EAGER_PROFILE)))
    assert next(gate for gate in swapped.gates if gate.name == "kernels").verdict is Verdict.FAIL


def test_one_profile_alone_is_refused():
    assert given_profiles(None, None) is None
    with pytest.raises(MisuseError, match="together, or neither"):
        given_profiles("a.csv", None)


def test_phase_7_without_a_profile_is_inconclusive(study, integration, tmp_path):
    integration.write()
    shutil.copytree(study.run_dir / "phases", tmp_path / "phases")
    (gate,) = reduce_copies(elsewhere(study, tmp_path)).gates
    assert gate.verdict is Verdict.INCONCLUSIVE
    assert gate.reason.startswith("phase 6 left no profile")
