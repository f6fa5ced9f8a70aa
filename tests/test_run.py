"""A run from parameters to evidence: order, stop, resume, what breaks it, and what can be believed afterwards."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fusionkit import store
from fusionkit.errors import MisuseError, RunBrokenError
from fusionkit.evidence.manifest import files_in, read_manifest
from fusionkit.evidence.status import run_status
from fusionkit.evidence.verify import verify_evidence
from fusionkit.execution.limits import Limits
from fusionkit.run import RunResult, run_parameters
from fusionkit.verdict import Verdict

in_process = pytest.mark.usefixtures("without_kernels", "same_code")


@pytest.fixture
def same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's own hash stands still, also while its files are being edited."""
    monkeypatch.setattr("fusionkit.execution.plan.package_sha256", lambda: "0" * 64)
    monkeypatch.setattr("fusionkit.evidence.verify.package_sha256", lambda: "0" * 64)


class Heard:
    """A Progress that writes down what it is told."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.ended: list[tuple[str, bool]] = []
        self.cells: list[tuple[int, int]] = []

    def notebook_started(self, index: int, total: int, name: str) -> None:
        self.started.append(f"{index}/{total} {name}")

    def cell_started(self, cell: int, cells: int) -> None:
        self.cells.append((cell, cells))

    def notebook_ended(self, outcome: str, seconds: float | None) -> None:
        self.ended.append((outcome, seconds is None))


def run(investigation: Any, **options: Any) -> RunResult:
    return run_parameters(
        investigation.yaml, notebooks_dir=investigation.notebooks, out=investigation.out, **options
    )


def three(investigation: Any, *verdicts: str) -> None:
    for number, verdict in enumerate(verdicts, start=1):
        investigation.add(f"{number:02d}_n", verdict=verdict, reason=f"reason {number}")


@in_process
def test_notebooks_run_in_order_and_a_failed_gate_stops_them(investigation: Any) -> None:
    three(investigation, "PASS", "INCONCLUSIVE", "FAIL", "PASS")
    heard = Heard()
    result = run(investigation, progress=heard)
    assert heard.started == ["1/4 01_n", "2/4 02_n", "3/4 03_n"]
    assert heard.ended == [("PASS", False), ("INCONCLUSIVE", False), ("FAIL", False)]
    assert heard.cells[:3] == [(1, 3), (2, 3), (3, 3)]
    assert result.exit_code == 1
    assert result.stopped_at is not None
    assert (result.stopped_at.notebook, result.stopped_at.reason) == ("03_n", "hits: reason 3")
    assert [phase.notebook for phase in result.inconclusive] == ["02_n"]
    assert result.not_run == ("04_n",)
    assert not (investigation.out / "phases/04.json").exists()
    manifest = read_manifest(investigation.out)
    assert [(entry.name, entry.return_code) for entry in manifest.notebooks] == [
        ("01_n", 0),
        ("02_n", 0),
        ("03_n", 1),
    ]
    assert (manifest.return_code, manifest.ended is None) == (1, False)
    assert verify_evidence(investigation.out).outcome == "verified"


@in_process
def test_inconclusive_passes_unless_strict(investigation: Any) -> None:
    three(investigation, "PASS", "INCONCLUSIVE")
    assert run(investigation).exit_code == 0
    assert run(investigation, strict=True).exit_code == 1


@in_process
def test_a_notebook_without_phase_or_gates_is_no_pass(investigation: Any) -> None:
    investigation.add("01_n", last=False)
    investigation.add("02_n")
    result = run(investigation)
    assert result.exit_code == 1
    assert result.phases[0].verdict is None
    assert result.not_run == ("02_n",)
    text = (path := investigation.add("01_n")).read_text()
    path.write_text(text.replace('[Gate(\\"hits\\", Verdict.PASS, \\"12 of 12\\")]', "[]"))
    result = run(investigation)
    assert [phase.verdict for phase in result.phases] == [Verdict.INCONCLUSIVE, Verdict.PASS]
    assert result.exit_code == 1


@in_process
def test_same_inputs_give_the_same_record(investigation: Any, tmp_path: Path) -> None:
    three(investigation, "PASS", "INCONCLUSIVE")
    run(investigation)
    first = (investigation.out / "record.jsonl").read_bytes()
    run(investigation)
    assert (investigation.out / "record.jsonl").read_bytes() == first
    investigation.out = tmp_path / "elsewhere"
    run(investigation)
    assert (investigation.out / "record.jsonl").read_bytes() == first
    assert first.count(b"\n") == 2


@in_process
def test_the_notebooks_get_the_parameters_and_the_run_folder(investigation: Any) -> None:
    cell = "open(run_dir + '/artifacts.txt', 'w').write(f'{subject} {expected_sites}')"
    investigation.add("01_n", cell)
    run(investigation, overrides=["expected_sites.rms_norm=13", "subject=wan"])
    assert (investigation.out / "artifacts.txt").read_text() == "wan {'rms_norm': 13, 'rope': None}"
    manifest = read_manifest(investigation.out)
    assert manifest.parameters == {"subject": "wan", "expected_sites": {"rms_norm": 13}}
    assert manifest.notebooks[0].outputs == ("01_n.html", "01_n.ipynb", "artifacts.txt", "phases/01.json")
    assert (investigation.out / "inputs/tiny.yaml").read_bytes() == investigation.yaml.read_bytes()


@in_process
def test_resume_keeps_what_is_unchanged_and_runs_the_rest(investigation: Any) -> None:
    three(investigation, "PASS", "INCONCLUSIVE", "FAIL", "PASS")
    run(investigation)
    investigation.add("03_n", reason="repaired")
    heard = Heard()
    result = run(investigation, resume=True, progress=heard)
    assert heard.ended == [("PASS", True), ("INCONCLUSIVE", True), ("PASS", False), ("PASS", False)]
    assert result.exit_code == 0
    assert [phase.kept for phase in result.phases] == [True, True, False, False]
    assert verify_evidence(investigation.out).outcome == "verified"
    heard = Heard()
    run(investigation, resume=True, progress=heard)
    assert {kept for _, kept in heard.ended} == {True}


def new_parameter(investigation: Any) -> dict[str, Any]:
    return {"overrides": ["expected_sites.rope=8"]}


def new_notebook(investigation: Any) -> dict[str, Any]:
    investigation.add("01_n", "x = 1")
    return {}


def lost_output(investigation: Any) -> dict[str, Any]:
    (investigation.out / "01_n.html").unlink()
    return {}


def changed_phase(investigation: Any) -> dict[str, Any]:
    path = investigation.out / "phases/01.json"
    path.write_text(path.read_text().replace("reason 1", "better reason"))
    return {}


@in_process
@pytest.mark.parametrize("change", [new_parameter, new_notebook, lost_output, changed_phase])
def test_resume_runs_again_what_changed_and_all_after_it(
    investigation: Any, change: Callable[[Any], dict[str, Any]]
) -> None:
    three(investigation, "PASS", "PASS")
    run(investigation)
    heard = Heard()
    run(investigation, resume=True, progress=heard, **change(investigation))
    assert heard.ended == [("PASS", False), ("PASS", False)]
    assert verify_evidence(investigation.out).outcome == "verified"


@in_process
def test_resume_of_some_notebooks_drops_what_was_built_on_them(investigation: Any) -> None:
    three(investigation, "PASS", "PASS", "PASS")
    run(investigation)
    run(investigation, resume=True, notebooks=["02"])
    assert [entry.name for entry in read_manifest(investigation.out).notebooks] == ["01_n", "02_n", "03_n"]
    investigation.add("02_n", reason="other")
    run(investigation, resume=True, notebooks=["02"])
    assert [entry.name for entry in read_manifest(investigation.out).notebooks] == ["01_n", "02_n"]
    assert not (investigation.out / "03_n.ipynb").exists()
    assert (investigation.out / "record.jsonl").read_text().count("\n") == 2
    assert verify_evidence(investigation.out).outcome == "verified"
    investigation.add("01_n", reason="other")
    assert verify_evidence(investigation.out).outcome == "stale"


@in_process
def test_a_second_run_replaces_the_first(investigation: Any) -> None:
    three(investigation, "PASS", "PASS")
    run(investigation)
    run(investigation, notebooks=["01"])
    assert not (investigation.out / "02_n.html").exists()
    assert verify_evidence(investigation.out).outcome == "verified"
    assert [path.name for path in investigation.out.parent.iterdir()] == ["tiny"]
    (investigation.out / "notes.txt").write_text("mine")
    with pytest.raises(MisuseError, match=r"notes\.txt"):
        run(investigation)
    assert (investigation.out / "notes.txt").exists()


@in_process
@pytest.mark.parametrize(
    "wrong",
    [
        {"overrides": ["subjct=flux"]},
        {"overrides": ["subject=fluxx"]},
        {"overrides": ["pattern_file=none.py"]},
        {"notebooks": ["09"]},
        {"resume": True, "overrides": ["expected_sites.none=1"]},
    ],
)
def test_misuse_writes_nothing(investigation: Any, wrong: dict[str, Any]) -> None:
    investigation.add("01_n")
    with pytest.raises(MisuseError):
        run(investigation, **wrong)
    assert not investigation.out.parent.exists()
    run(investigation)
    before = {name: (investigation.out / name).read_bytes() for name in files_in(investigation.out)}
    with pytest.raises(MisuseError):
        run(investigation, **wrong)
    assert {name: (investigation.out / name).read_bytes() for name in files_in(investigation.out)} == before


def full_disk(after: int) -> Callable[..., None]:
    """An os.replace that works `after` times, then finds no space, as store.write_bytes meets it."""
    real, calls = os.replace, iter(range(10**6))

    def replace(source: Any, target: Any) -> None:
        if next(calls) >= after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, target)

    return replace


@in_process
@pytest.mark.parametrize("after", [0, 1, 3, 4, 8, 12, 15])
def test_a_full_disk_breaks_the_run_and_leaves_only_whole_files(
    investigation: Any, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    three(investigation, "PASS", "PASS")
    run(investigation)
    before = {name: (investigation.out / name).read_bytes() for name in files_in(investigation.out)}
    with monkeypatch.context() as patch:
        patch.setattr(store.os, "replace", full_disk(after))
        with pytest.raises(RunBrokenError, match="No space left on device") as caught:
            run(investigation)
    assert "\n" not in str(caught.value)
    for path in investigation.out.rglob("*.json"):
        json.loads(path.read_text())
    opened = after >= 4  # the manifest, the copy of the YAML, the index, the manifest again
    kept = investigation.out.with_name("tiny.previous") if opened else investigation.out
    assert {name: (kept / name).read_bytes() for name in files_in(kept)} == before
    assert ("tiny.previous" in str(caught.value)) == opened
    assert run(investigation, resume=True).exit_code == 0
    assert verify_evidence(investigation.out).outcome == "verified"
    assert not investigation.out.with_name("tiny.previous").exists()


@in_process
def test_an_output_that_cannot_be_written_breaks_the_run(investigation: Any) -> None:
    investigation.add("01_n")
    investigation.out.parent.write_text("a file in the way")
    with pytest.raises(RunBrokenError, match="cannot make the run folder"):
        run(investigation)


@in_process
def test_an_interrupted_run_is_incomplete_and_can_be_resumed(investigation: Any) -> None:
    three(investigation, "PASS", "PASS")
    good = (investigation.notebooks / "02_n.ipynb").read_text()
    investigation.add("02_n", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        run(investigation)
    assert read_manifest(investigation.out).return_code == 130
    assert verify_evidence(investigation.out).outcome == "incomplete"
    (investigation.notebooks / "02_n.ipynb").write_text(good)
    assert [phase.kept for phase in run(investigation, resume=True).phases] == [True, False]


@pytest.mark.notebook
def test_a_notebook_that_breaks_leaves_its_part_under_a_name_that_says_so(investigation: Any) -> None:
    investigation.add("01_n")
    investigation.add("02_n", "print('reached')", "import os; os._exit(1)")
    with pytest.raises(RunBrokenError, match=r"02_n cell 5: the kernel died .* in 02_n\.partial\.ipynb"):
        run(investigation, limits=Limits(60))
    out = investigation.out
    assert {path.name for path in out.glob("0*")} == {
        "01_n.ipynb",
        "01_n.html",
        "02_n.partial.ipynb",
        "02_n.partial.html",
    }
    assert "reached" in (out / "02_n.partial.html").read_text()
    assert read_manifest(out).return_code == 3
    assert [(row.notebook, row.verdict) for row in run_status(out).rows] == [
        ("01_n", "PASS"),
        ("02_n", "BROKEN"),
    ]
    assert "the kernel died (exit code 1)" in run_status(out).rows[1].reason
    assert "the kernel died (exit code 1)" in (out / "index.html").read_text()
    verification = verify_evidence(out)
    assert verification.outcome == "incomplete"
    assert "the run ended with 3" in [finding.what for finding in verification.findings]
    investigation.add("02_n")
    heard = Heard()
    assert run(investigation, resume=True, progress=heard).exit_code == 0
    assert heard.ended[1] == ("PASS", False)
    assert not list(out.glob("*.partial.*"))
    assert verify_evidence(out).findings == ()


class Links(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.targets += [value or "" for name, value in attrs if name == "href"]


@in_process
def test_the_index_leads_to_every_page(investigation: Any) -> None:
    three(investigation, "PASS", "FAIL", "PASS")
    run(investigation)
    page = (investigation.out / "index.html").read_text("utf-8")
    targets = Links(page).targets
    assert targets == ["01_n.html", "02_n.html", "record.md", "record.jsonl", "manifest.json"]
    assert all((investigation.out / target).is_file() for target in targets)
    assert "did not run" in page


@pytest.mark.notebook
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each kernel imports torch by itself")
def test_the_kernels_of_a_run_are_forks_of_one_process_that_has_imported_torch(investigation: Any) -> None:
    log = investigation.root / "kernels"
    cell = (
        "import json, os, sys, threading\n"
        "torch = sys.modules.get('torch')\n"
        f"with open({str(log)!r}, 'a') as stream:\n"
        "    print(json.dumps([os.getppid(), torch is not None, hasattr(torch, 'left_behind'), os.getsid(0) == os.getpid(),"
        " os.environ.get('OPENBLAS_NUM_THREADS'), 'JPY_PARENT_PID' in os.environ]), file=stream)\n"
        "torch.left_behind = 1"
    )
    for number in (1, 2):
        investigation.add(f"{number:02d}_n", cell)
    assert run(investigation).exit_code == 0
    first, second = (json.loads(line) for line in log.read_text().splitlines())
    assert first == second == [first[0], True, False, True, os.environ.get("OPENBLAS_NUM_THREADS"), False]
    assert not Path(f"/proc/{first[0]}").exists()
