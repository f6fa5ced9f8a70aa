"""What a verification finds in the folder of a finished run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fusionkit.errors import MisuseError
from fusionkit.evidence.manifest import MANIFEST, files_in, hash_outputs, read_manifest, write_manifest
from fusionkit.evidence.phase_records import read_phases, write_record
from fusionkit.evidence.verify import verify_evidence
from fusionkit.run import run_parameters
from fusionkit.store import write_json

COMPARED = """\
import torch
from fusionkit.evidence.numeric_artifact import ComparedOutput, write_compared
reference = torch.linspace(0.1, 1, 8, dtype=torch.float64).reshape(2, 4)
artifact, numeric = write_compared(
    run_dir, "compared", {"norm": ComparedOutput(reference.float(), reference.float(), reference)}
)
"""


def run_once(investigation: Any) -> None:
    """A finished run of two notebooks, the second with compared outputs."""
    investigation.add("01_n")
    path = investigation.add("02_n", COMPARED)
    kept = "numeric=numeric, artifacts=[artifact], benefit="
    path.write_text(path.read_text().replace("benefit=", kept))
    (investigation.root / "pattern.py").write_text("EPS = 1e-6\n")
    investigation.yaml.write_text("subject: flux\npattern_file: pattern.py\n")
    run_parameters(investigation.yaml, notebooks_dir=investigation.notebooks, out=investigation.out)


@pytest.fixture(scope="module")
def run_of_all(make_spared: Callable[[Callable[[Any], None]], Any]) -> Any:
    return make_spared(run_once)


@pytest.fixture
def finished(run_of_all: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A copy of the finished run, made by the code of today whatever is being edited."""
    monkeypatch.setattr("fusionkit.evidence.verify.package_sha256", lambda: "0" * 64)
    return run_of_all.copy_to(tmp_path / "work")


FILES = (
    "01_n.html",
    "01_n.ipynb",
    "02_n.html",
    "02_n.ipynb",
    "artifacts/compared.json",
    "artifacts/compared.safetensors",
    "index.html",
    "inputs/pattern.py",
    "inputs/tiny.yaml",
    "phases/01.json",
    "phases/02.json",
    "record.jsonl",
    "record.md",
)


def outcome(out: Path) -> tuple[str, set[str]]:
    verification = verify_evidence(out)
    return verification.outcome, {finding.path for finding in verification.findings}


def test_a_finished_run_is_verified(finished: Any) -> None:
    verification = verify_evidence(finished.out)
    assert verification
    assert verification.to_dict()["outcome"] == "verified"
    assert [phase["verdict"] for phase in verification.to_dict()["phases"]] == ["PASS", "PASS"]
    assert verification.findings == ()
    assert tuple(sorted(files_in(finished.out))) == FILES


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_one_changed_byte_in_any_file_contradicts(finished: Any, name: str) -> None:
    path = finished.out / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    found, paths = outcome(finished.out)
    assert found == "contradicted"
    assert name in paths


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_a_file_that_is_missing_makes_it_incomplete(finished: Any, name: str) -> None:
    (finished.out / name).unlink()
    verification = verify_evidence(finished.out)
    assert verification.outcome == "incomplete"
    assert any(f.path == name and f.effect == "incomplete" for f in verification.findings)


def test_a_file_that_the_run_did_not_write_contradicts(finished: Any) -> None:
    (finished.out / "artifacts/extra.csv").write_text("better numbers")
    assert outcome(finished.out) == ("contradicted", {"artifacts/extra.csv"})


def reseal(out: Path) -> None:
    """Make hashes and seal fit what is there, as a liar would."""
    manifest = read_manifest(out)
    write_manifest(out, replace(manifest, outputs=hash_outputs(out, {})))


def lie_about_a_verdict(out: Path) -> None:
    phase = read_phases(out)[0]
    phase["gates"][0]["verdict"] = "FAIL"
    write_json(out / "phases/01.json", phase)
    write_record(out)


def lie_about_numbers(out: Path) -> None:
    phase = read_phases(out)[1]
    phase["numeric"]["norm"]["max_abs"] = 1e-9
    write_json(out / "phases/02.json", phase)
    write_record(out)


def lie_in_the_record(out: Path) -> None:
    path = out / "record.jsonl"
    path.write_text(path.read_text().replace("12 of 12", "13 of 13"))


def lie_in_the_page(out: Path) -> None:
    path = out / "record.md"
    path.write_text(path.read_text() + "\nall is well\n")


def slip_in_a_phase(out: Path) -> None:
    phase = {**read_phases(out)[0], "phase": 3}
    write_json(out / "phases/03.json", phase)
    write_record(out)


def spoil_a_phase(out: Path) -> None:
    (out / "phases/01.json").write_text(json.dumps({"schema": "fusionkit/phase/1"}))


@pytest.mark.parametrize(
    "lie",
    [
        lie_about_a_verdict,
        lie_about_numbers,
        lie_in_the_record,
        lie_in_the_page,
        slip_in_a_phase,
        spoil_a_phase,
    ],
)
def test_a_lie_shows_even_where_hashes_and_seal_were_made_to_fit(
    finished: Any, lie: Callable[[Path], None]
) -> None:
    lie(finished.out)
    reseal(finished.out)
    assert outcome(finished.out)[0] == "contradicted"


def drop_numeric_artifact(out: Path) -> None:
    phase = read_phases(out)[1]
    phase["artifacts"] = []
    write_json(out / "phases/02.json", phase)
    write_record(out)


def drop_a_phase(out: Path) -> None:
    (out / "phases/02.json").unlink()
    write_record(out)


def drop_all_phases(out: Path) -> None:
    shutil.rmtree(out / "phases")
    write_record(out)


@pytest.mark.parametrize("drop", [drop_numeric_artifact, drop_a_phase, drop_all_phases])
def test_what_lacks_shows_even_where_hashes_and_seal_were_made_to_fit(
    finished: Any, drop: Callable[[Path], None]
) -> None:
    drop(finished.out)
    reseal(finished.out)
    assert outcome(finished.out)[0] == "incomplete"


@pytest.mark.parametrize("name", ["tiny.yaml", "pattern.py", "notebooks/02_n.ipynb"])
def test_changed_inputs_make_it_stale(finished: Any, name: str) -> None:
    path = finished.yaml.parent / name
    path.write_text(path.read_text() + "\n")
    found, paths = outcome(finished.out)
    assert found == "stale"
    assert len(paths) == 1


def test_changed_code_makes_it_stale(finished: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusionkit.evidence.verify.package_sha256", lambda: "1" * 64)
    assert outcome(finished.out)[0] == "stale"
    monkeypatch.setattr("fusionkit.__version__", "9.9.9")
    assert "made by fusionkit 0" in verify_evidence(finished.out).findings[0].what


def test_evidence_that_was_carried_elsewhere_is_verified_with_notes(finished: Any, tmp_path: Path) -> None:
    shutil.copytree(finished.out, tmp_path / "deep/in/an/archive")
    verification = verify_evidence(tmp_path / "deep/in/an/archive")
    assert verification.outcome == "verified"
    assert {finding.effect for finding in verification.findings} == {"note"}
    assert any("a copy as inputs/pattern.py" in finding.what for finding in verification.findings)


def test_a_run_that_was_killed_is_incomplete(finished: Any) -> None:
    manifest = read_manifest(finished.out)
    write_manifest(finished.out, replace(manifest, ended=None, return_code=None))
    assert outcome(finished.out) == ("incomplete", {MANIFEST})
    (finished.out / "02_n.partial.ipynb").write_text("{}")
    assert outcome(finished.out) == ("incomplete", {MANIFEST, "02_n.partial.ipynb"})
    (finished.out / "notes.txt").write_text("mine")
    assert outcome(finished.out)[0] == "contradicted"


def test_other_folders_are_misuse(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(MisuseError, match="not a run folder"):
            verify_evidence(folder)
