"""The measured claims of benchmarks/: in full for `make acceptance`, a small case of each for `make test`."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fusionkit.npu.target import use_target

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
# Benchmark -> arguments of the full run.
FULL: dict[str, list[str]] = {
    "dry_capture": [],
    "evidence_run": [],
    "explain_misses": ["--repair", "--held-out"],
    "explain_speed": [],
    "import_time": [],
    "prove_labels": [],
    "prove_replacements": [],
    "replacement_share": [],
    "scan_speed": [],
    "score_scan": ["--held-out"],
}
# Benchmark -> arguments of a run of a second, and what it prints.
SMALL: dict[str, tuple[list[str], str]] = {
    "import_time": (["--pairs", "1"], r"\d\.\d+"),
    "replacement_share": (["--every", "400"], r"npu_rms_norm"),
}
# Benchmark -> the file of the test suite that checks a small case of the same claim.
CHECKED_BY = {
    "dry_capture": "tests/notebooks/test_dry_runs.py",
    "evidence_run": "tests/notebooks/test_runs.py",
    "explain_misses": "tests/test_mismatch_benchmark.py",
    "explain_speed": "tests/match/explanation/test_explain.py",
    "prove_labels": "tests/identify/proving/test_prove_models.py",
    "prove_replacements": "tests/identify/proving/test_prove_models.py",
    "scan_speed": "tests/identify/test_scan.py",
    "score_scan": "tests/identify/rules/test_rms_norm.py",
}


def test_every_benchmark_has_a_full_run_and_a_small_case():
    assert set(FULL) == {path.stem for path in BENCHMARKS.glob("*.py")}
    assert set(SMALL) | set(CHECKED_BY) == set(FULL)
    assert not set(SMALL) & set(CHECKED_BY)
    assert [file for file in CHECKED_BY.values() if not (ROOT / file).is_file()] == []


@pytest.mark.acceptance
@pytest.mark.parametrize("name", FULL)
def test_the_claim_is_borne_out(name):
    done = subprocess.run([sys.executable, BENCHMARKS / f"{name}.py", *FULL[name]], cwd=ROOT, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("name", SMALL)
def test_a_small_case_runs(name, monkeypatch, capsys):
    use_target("cpu")
    words, printed = SMALL[name]
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
    assert module.main() in (0, 1)  # times on a busy machine are no claim
    assert re.search(printed, capsys.readouterr().out)
