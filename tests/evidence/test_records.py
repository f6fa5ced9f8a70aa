"""Phases on disk, and the record that is rendered from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fusionkit.errors import MisuseError
from fusionkit.evidence.gates import Gate
from fusionkit.evidence.phase_records import PhaseRecord, read_phases, write_phase
from fusionkit.evidence.status import run_status
from fusionkit.evidence.verify import verify_evidence
from fusionkit.verdict import Verdict


def record(phase: int = 6, **changes: Any) -> PhaseRecord:
    values: dict[str, Any] = {
        "phase": phase,
        "notebook": f"{phase:02d}_verify",
        "subject": "flux",
        "target": "cpu",
        "window": "before-freezing",
        "dtype": "bfloat16",
        "gates": [Gate("hits", Verdict.PASS, "12 of 12"), Gate("kernels", Verdict.INCONCLUSIVE, "a | b\nc")],
        "hits": {"rms_norm": {"hits": 12, "expected_sites": 12}, "rope": {"hits": 8, "expected_sites": None}},
        "numeric": {"site a": {"verdict": "PASS", "reason": "max 0.5 ulp"}, "max_abs": float("nan")},
        "benefit": "adopted: 12 kernels fewer",
        "switch": "enable_rms_norm = True",
    }
    return PhaseRecord(**{**values, **changes})


def test_record_md_has_the_four_literal_keys_of_each_phase(tmp_path: Path) -> None:
    write_phase(tmp_path, record())
    text = (tmp_path / "record.md").read_text("utf-8")
    assert "\n- Phase 6 证据: 06_verify.ipynb\n" in text
    assert "\n- 命中: rms_norm 12/12, rope 8/?\n" in text
    assert "\n- 数值核验: max_abs nan, site a PASS max 0.5 ulp\n" in text
    assert "\n- 收益判定: adopted: 12 kernels fewer；开关状态: enable_rms_norm = True\n" in text
    assert "| kernels | INCONCLUSIVE | a \\| b c |" in text


def test_a_phase_that_claims_nothing_still_has_all_keys(tmp_path: Path) -> None:
    write_phase(tmp_path, record(hits={}, numeric={}, benefit="", switch=""))
    lines = [
        line for line in (tmp_path / "record.md").read_text("utf-8").splitlines() if line.startswith("- ")
    ]
    assert lines == [
        "- Phase 6 证据: 06_verify.ipynb",
        "- 命中: none in this phase",
        "- 数值核验: none in this phase",
        "- 收益判定: none in this phase；开关状态: none in this phase",
    ]


def test_the_record_has_one_line_per_phase_in_order_and_replaces_a_phase(tmp_path: Path) -> None:
    for phase in (6, 2, 4):
        write_phase(tmp_path, record(phase))
    write_phase(tmp_path, record(2, gates=[]))
    lines = [json.loads(line) for line in (tmp_path / "record.jsonl").read_text("utf-8").splitlines()]
    assert [line["phase"] for line in lines] == [2, 4, 6]
    assert [line["verdict"] for line in lines] == ["INCONCLUSIVE"] * 3
    assert lines[0]["reason"] == "nothing was compared"
    assert lines[1]["gates"][0] == {"name": "hits", "reason": "12 of 12", "verdict": "PASS"}
    assert [phase["phase"] for phase in read_phases(tmp_path)] == [2, 4, 6]


def test_the_verdict_is_what_the_gates_combine_to() -> None:
    assert record().verdict is Verdict.INCONCLUSIVE
    assert not record()
    failing = record(gates=[Gate("a", Verdict.FAIL, "13 expected, 12 hit"), Gate("b", Verdict.PASS, "ok")])
    assert (failing.verdict, failing.reason) == (Verdict.FAIL, "a: 13 expected, 12 hit")


def test_the_record_does_not_depend_on_where_the_run_lies(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "another"):
        folder = tmp_path / name
        write_phase(folder, record(benefit=f"see {folder}/artifacts/x.csv"))
        texts.append((folder / "record.jsonl").read_bytes())
    assert texts[0] == texts[1]
    assert b"see artifacts/x.csv" in texts[0]


@pytest.mark.parametrize(
    "key", ["total_us", "seconds", "duration", "started", "wall_time", "date", "elapsed_ms", "US"]
)
def test_times_have_no_place_in_a_record(tmp_path: Path, key: str) -> None:
    with pytest.raises(MisuseError, match="no times"):
        write_phase(tmp_path, record(numeric={"site": {key: 1.0}}))
    assert not (tmp_path / "record.jsonl").exists()


@pytest.mark.parametrize(
    "key", ["time_embed.linear_1", "status", "focus", "transformer_blocks.0", "bias", "timestep"]
)
def test_names_that_only_look_like_times_are_kept(tmp_path: Path, key: str) -> None:
    write_phase(tmp_path, record(numeric={key: {"verdict": "PASS"}}))
    assert key in read_phases(tmp_path)[0]["numeric"]


@pytest.mark.parametrize("value", [object(), {1: 2}, {"a": {"b": b"x"}}])
def test_what_json_does_not_have_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(MisuseError, match="hits"):
        write_phase(tmp_path, record(hits={"rms_norm": value}))


@pytest.mark.parametrize(
    ("artifact", "told"),
    [
        ({"path": "/etc/hostname", "kind": "csv"}, "must be relative"),
        ({"path": "../outside.csv", "kind": "csv"}, "must be relative"),
        ({"path": "artifacts/none.csv", "kind": "csv"}, "is not there"),
        ({"path": "artifacts/none.csv"}, "an artifact is"),
    ],
)
def test_an_artifact_is_a_file_of_the_run_folder(tmp_path: Path, artifact: dict[str, str], told: str) -> None:
    (tmp_path / "outside.csv").write_text("x")
    with pytest.raises(MisuseError, match=told):
        write_phase(tmp_path / "run", record(artifacts=[artifact]))


@pytest.mark.parametrize("phase", [0, 100])
def test_phases_have_two_digits(tmp_path: Path, phase: int) -> None:
    with pytest.raises(MisuseError, match="1 to 99"):
        write_phase(tmp_path, record(phase))


FIELDS = (
    "phase",
    "notebook",
    "subject",
    "target",
    "window",
    "dtype",
    "gates",
    "hits",
    "numeric",
    "benefit",
    "switch",
    "artifacts",
    "verdict",
    "reason",
)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, None) for name in FIELDS),
        *(("phase", value) for value in ("x", 3.5, True, [], {})),
        *(("gates", value) for value in ("x", [3], [{}], [{"name": "a", "verdict": "x", "reason": ""}])),
        *(("artifacts", value) for value in ("x", [{}], [{"path": 3, "kind": "csv"}])),
        ("hits", []),
        ("verdict", "x"),
    ],
)
def test_a_wrong_field_of_a_phase_is_one_line_of_verify_and_status(
    tmp_path: Path, field: str, value: Any
) -> None:
    path = write_phase(tmp_path, record())
    written = json.loads(path.read_text("utf-8"))
    assert set(written) == {"schema", *FIELDS}
    path.write_text(json.dumps({**written, field: value}))
    assert_refused(tmp_path, field)


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_that_a_phase_lacks_is_one_line_of_verify_and_status(tmp_path: Path, field: str) -> None:
    path = write_phase(tmp_path, record())
    written = json.loads(path.read_text("utf-8"))
    del written[field]
    path.write_text(json.dumps(written))
    assert_refused(tmp_path, field)


def assert_refused(run_dir: Path, field: str) -> None:
    with pytest.raises(MisuseError) as refusal:
        run_status(run_dir)
    line = str(refusal.value)
    assert line.startswith(f"{run_dir}/phases/06.json: not a phase of schema fusionkit/phase/1; run the")
    assert f"@ $.{field}" in line
    assert "\n" not in line
    verification = verify_evidence(run_dir)
    assert verification.outcome == "contradicted"
    assert any("cannot be read as phases" in finding.what for finding in verification.findings)
