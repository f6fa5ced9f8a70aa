"""The notebooks headless, as users run them: whole runs, their exit codes, their evidence."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import pytest
from finished_runs import llama_words
from trial_files import write_trial

from fusionkit.cli import main
from fusionkit.evidence.verify import verify_evidence
from fusionkit.execution.kernel import kernel_server
from fusionkit.run import NOTEBOOK_MODULES

pytestmark = pytest.mark.notebook
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def kernels():
    """What forks the kernels of all runs of this module; `finished_run` is a process with a server of its own."""
    llama = "transformers.models.llama.modeling_llama"
    with kernel_server("cpu", (*NOTEBOOK_MODULES, llama), "flux") as server:
        yield server


@pytest.fixture
def command(capsys, monkeypatch, kernels):
    """Runs a command in this process; what it gives is its exit code, output and error."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        "fusionkit.execution.kernel.kernel_server", lambda *_: contextlib.nullcontext(kernels)
    )

    def run(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_the_record_has_the_literal_evidence_keys(finished_run):
    text = (finished_run / "record.md").read_text()
    for phase in range(1, 8):
        assert f"- Phase {phase} 证据: " in text
    for key in ("- 命中: ", "- 数值核验: ", "- 收益判定: ", "；开关状态: "):
        assert key in text
    assert "CPU" in text


def test_a_second_run_gives_the_same_record(finished_run, command, tmp_path, tmp_path_factory):
    again = tmp_path / "llama"
    assert command(*llama_words(tmp_path_factory), "--out", str(again))[0] == 0
    assert (again / "record.jsonl").read_bytes() == (finished_run / "record.jsonl").read_bytes()


def test_the_run_is_verified(finished_run, command):
    code, out, _ = command("verify", str(finished_run))
    assert code == 0, out
    assert out.splitlines()[-1].startswith("verified:")


def artifacts_of(run_dir: Path) -> list[str]:
    return [
        a["path"]
        for line in (run_dir / "record.jsonl").read_text().splitlines()
        for a in json.loads(line)["artifacts"]
    ]


def test_one_changed_byte_in_any_artifact_is_contradicted(finished_run, tmp_path, monkeypatch):
    """Each byte by the hash alone; then all of them at once, with every claim computed anew from what is broken."""
    copy = tmp_path / "copy"
    shutil.copytree(finished_run, copy)
    names = sorted(set(artifacts_of(copy)))
    assert len(names) >= 15
    changed = {}
    with monkeypatch.context() as without_rechecks:
        without_rechecks.setattr("fusionkit.evidence.verify.RECHECKS", {})
        for name in names:
            path = copy / name
            original = path.read_bytes()
            middle = len(original) // 2
            changed[path] = original[:middle] + bytes([original[middle] ^ 1]) + original[middle + 1 :]
            path.write_bytes(changed[path])
            found = verify_evidence(copy)
            assert str(found.outcome) == "contradicted", name
            assert any(finding.path == name for finding in found.findings), name
            path.write_bytes(original)
    assert verify_evidence(copy)
    for path, content in changed.items():
        path.write_bytes(content)
    found = verify_evidence(copy)
    assert str(found.outcome) == "contradicted"
    assert set(names) <= {finding.path for finding in found.findings}


def test_a_forged_claim_is_contradicted_even_with_right_hashes(finished_run, tmp_path):
    """Hits and numbers are counted again from the artifacts, whatever the record says."""
    from fusionkit.evidence.verify import recheck_phase
    from fusionkit.store import read_json

    phase = read_json(finished_run / "phases/06.json")
    assert recheck_phase(finished_run, phase) == []
    forged = json.loads(json.dumps(phase))
    forged["hits"]["rms_norm"]["hits"] += 1
    assert any("rms_norm" in finding.what for finding in recheck_phase(finished_run, forged))
    forged = json.loads(json.dumps(phase))
    site = next(iter(forged["numeric"]))
    forged["numeric"][site]["max_ulps"] = 0.0
    assert any(site in finding.what for finding in recheck_phase(finished_run, forged))


def test_resume_runs_nothing_anew(finished_run, command, tmp_path, tmp_path_factory):
    copy = shutil.copytree(finished_run, tmp_path / "llama")
    code, out, err = command(*llama_words(tmp_path_factory), "--out", str(copy), "--resume")
    assert code == 0, err
    assert out.startswith("PASS: 7 of 7 phases pass")
    assert err.count("kept") == 7


def test_a_wrong_expected_number_stops_at_phase_6_and_names_both(tmp_path, command):
    out = tmp_path / "run"
    words = ["-P", "expected_sites.rms_norm=13", "--notebooks", "06,07", "--out", str(out)]
    code, stdout, _ = command("run", "parameters/flux-tiny.yaml", "-P", "second_target=", *words)
    assert code == 1
    assert "06_verify_integration" in stdout
    assert "13" in stdout
    assert "12" in stdout
    assert (out / "phases/06.json").is_file()
    assert not (out / "phases/07.json").exists()
    assert str(verify_evidence(out).outcome) == "verified"


def test_a_changed_eps_misses_everywhere_and_says_why(tmp_path, command):
    trial = write_trial(tmp_path, eps="1e-6")
    out = tmp_path / "run"
    words = ["-P", f"pattern_file={trial}", "--notebooks", "05,06,07", "--out", str(out)]
    code, _, _ = command("run", "parameters/flux-tiny.yaml", "-P", "second_target=", *words)
    assert code == 1
    page = (out / "05_debug_mismatch.html").read_text().replace("<wbr/>", "")
    phase5 = json.loads((out / "phases/05.json").read_text())
    for word in ("scalar_literal", "1e-06", "9.999999974752427e-07"):
        assert word in phase5["reason"]
        assert word in page
    assert not (out / "phases/07.json").exists()


def test_phase_5_works_from_a_capsule_alone(tmp_path, command):
    capsule, out = tmp_path / "llama.json", tmp_path / "run"
    assert command("capture", "llama", "--out", str(capsule))[0] == 0
    words = ["--notebooks", "05", "-P", f"subject={capsule}", "--out", str(out)]
    code, stdout, err = command("run", "parameters/llama-tiny.yaml", *words)
    assert code == 0, err
    assert stdout.startswith("PASS: 1 of 1 phases pass")
    phase = json.loads((out / "phases/05.json").read_text())
    assert phase["subject"] == "llama"
    assert {name: entry["hits"] for name, entry in phase["hits"].items()} == {
        "rms_norm": 5,
        "rope": 4,
        "swiglu": 2,
    }
    assert command("verify", str(out))[0] == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert str(capsule) in json.dumps(manifest)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["parameters/flux-tiny.yaml", "-P", "colour=red"], "colour"),
        (["parameters/flux-tiny.yaml", "-P", "subject=nowhere.json"], "nowhere.json"),
        (["parameters/flux-tiny.yaml", "-P", "expected_sites.rms_nrm=1"], "rms_nrm"),
        (["parameters/flux-tiny.yaml", "-P", "subject=fluxx"], "fluxx"),
        (["nowhere.yaml"], "nowhere.yaml"),
        (["{bad_yaml}"], "bad.yaml"),
        (["parameters/flux-tiny.yaml", "-P", "pattern_file={bad_py}"], "bad_pattern.py line 1"),
    ],
)
def test_misuse_is_one_line_exit_2_and_writes_nothing(tmp_path, command, words, named):
    (tmp_path / "bad.yaml").write_text("subject: [flux\n")
    (tmp_path / "bad_pattern.py").write_text("def f(:\n")
    words = [
        w.format(bad_yaml=tmp_path / "bad.yaml", bad_py=tmp_path / "bad_pattern.py") if "{" in w else w
        for w in words
    ]
    before = sorted(tmp_path.iterdir())
    code, out, err = command("run", *words, "--out", str(tmp_path / "out"))
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert named in err
    assert sorted(tmp_path.iterdir()) == before
