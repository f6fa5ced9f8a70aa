"""Phase 5 from a capsule alone, and prefix isolation of the nearest variant."""

from __future__ import annotations

import dataclasses
import json

import pytest
from shared_models import small_subject
from trial_files import write_trial

from fusionkit.capture.capsule import write_capsule
from fusionkit.capture.capturing import capture_graphs
from fusionkit.errors import MisuseError
from fusionkit.evidence.verify import verify_evidence
from fusionkit.npu.target import use_target
from fusionkit.phases.mismatch import debug_mismatch
from fusionkit.phases.study import Study, open_study
from fusionkit.subjects.site_counts import expected_counts
from fusionkit.verdict import Verdict


@pytest.fixture(scope="module")
def capture():
    """Block: one torch.nn.RMSNorm, one norm written by hand, one GELU."""
    use_target("cpu")
    subject = small_subject()
    return dataclasses.replace(capture_graphs(subject), counts=expected_counts(subject))


def open_capsule(tmp_path, capture, **changes) -> Study:
    path = write_capsule(capture, tmp_path / "block.json")
    fields = {"subject": str(path), "patterns": ["rms_norm"], "run_dir": str(tmp_path / "run")} | changes
    return open_study(**fields)


@pytest.fixture
def missed(tmp_path, capture):
    """Phase 5 with a pattern file whose eps is wrong."""
    trial = write_trial(tmp_path, eps="1e-3")
    return debug_mismatch(open_capsule(tmp_path, capture, pattern_file=str(trial)))


def test_a_capsule_brings_its_own_counts_size_dtype_and_target(tmp_path, capture):
    study = open_capsule(tmp_path, capture, dtype="float32", target="cpu")
    assert (study.model.name, study.model.dtype, study.target) == ("block", "bfloat16", "cpu")
    assert study.counts == capture.counts
    assert study.counts["rms_norm"].expected == 1
    assert "neither weights nor values" in study.no_values


def test_hits_are_counted_in_the_capsules_graphs_and_borne_out_by_the_evidence(tmp_path, capture):
    study = open_capsule(tmp_path, capture, patterns=["gelu"])
    report = debug_mismatch(study)
    entry = report.report.patterns["gelu"]
    assert len(entry.hits) == 1
    record = report.write()
    assert record.hits["gelu"]["hits"] == 1
    assert record.verdict is entry.verdict
    fused = [
        node
        for graph in report.matching.after.graphs
        for node in graph.nodes
        if "npu_gelu" in str(node.target)
    ]
    assert len(fused) == 1
    from fusionkit.evidence.verify import recheck_phase
    from fusionkit.store import read_json

    assert recheck_phase(study.run_dir, read_json(study.run_dir / "phases/05.json")) == []


def test_a_miss_is_explained_from_the_capsule_with_rows_in_the_artifact(missed):
    (site, *_) = missed.explained["rms_norm"]
    assert site.module == "norm"
    assert ("scalar_literal", "0.001", "9.999999974752427e-07") in [
        (cause.type, cause.expected, cause.actual) for cause in site.causes
    ]
    missed.write()
    written = json.loads((missed.study.run_dir / "artifacts/05_explained.json").read_text())
    rows = written["rms_norm"][0]["rows"]
    assert len(rows) == len(site.rows)
    differing = [row for row in rows if row["state"] == "differs"]
    assert [(row["field"], row["expected"], row["actual"]) for row in differing] == [
        ("other", "0.001", "9.999999974752427e-07")
    ]


def test_isolation_shows_at_which_level_the_hits_fall(missed):
    rows = missed.prefix_rows()
    assert [row["level"] for row in rows] == list(range(1, len(rows) + 1))
    (falls,) = [row for row in rows if row["first difference"]]
    assert falls["call"] == "aten.add.Scalar(mean, 0.001)"
    before = [row for row in rows if row["level"] < falls["level"]]
    assert all(row["hits"] >= 1 for row in before)
    assert falls["hits"] == 0


def test_nothing_missed_is_nothing_to_isolate(tmp_path, capture):
    assert debug_mismatch(open_capsule(tmp_path, capture, patterns=["gelu"])).prefix_rows() == []


def test_without_counts_nothing_passes_and_near_places_are_told(tmp_path, capture):
    bare = dataclasses.replace(capture, counts={})
    trial = write_trial(tmp_path, eps="1e-3")
    report = debug_mismatch(open_capsule(tmp_path, bare, pattern_file=str(trial)))
    assert {gate.verdict for gate in report.gates} == {Verdict.INCONCLUSIVE}
    assert "norm" in {site.module for site in report.explained["rms_norm"]}
    assert {row["status"] for row in report.site_rows()} == {"near miss"}


def test_graphs_of_an_export_bear_no_verdict(tmp_path, capture):
    hit = debug_mismatch(open_capsule(tmp_path, capture, patterns=["gelu"]))
    exported = dataclasses.replace(capture, origin="export")
    told = debug_mismatch(open_capsule(tmp_path, exported, patterns=["gelu"]))
    assert [gate.verdict for gate in hit.gates] == [Verdict.PASS]
    assert [gate.verdict for gate in told.gates] == [Verdict.INCONCLUSIVE]
    assert "come from export" in told.gates[0].reason


def test_what_needs_a_model_is_refused_in_one_line(tmp_path, capture):
    study = open_capsule(tmp_path, capture)
    for step in (study.compile, study.compile_plain, lambda: study.reload("float32"), study.model.run):
        with pytest.raises(MisuseError, match="given as a capsule") as caught:
            step()
        assert "\n" not in str(caught.value)


def test_a_window_that_the_capsule_lacks_is_named(tmp_path, capture):
    study = open_capsule(tmp_path, capture, window="after-freezing")
    with pytest.raises(MisuseError, match="no graph was captured in window after-freezing"):
        debug_mismatch(study)


def test_a_file_that_is_no_capsule_is_one_line(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("{}")
    with pytest.raises(MisuseError, match="not a capsule"):
        open_study(subject=str(path), run_dir=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_evidence_of_a_capsule_run_is_not_contradicted(missed):
    missed.write()
    assert str(verify_evidence(missed.study.run_dir).outcome) != "contradicted"
