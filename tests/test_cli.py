"""The command line: exit codes, one line per error, JSON, and nothing heavy at the start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from fusionkit.cli import COMMANDS, main

in_process = pytest.mark.usefixtures("without_kernels")


def words(investigation: Any, *more: str) -> list[str]:
    options = ["--notebooks-dir", str(investigation.notebooks), "--out", str(investigation.out)]
    return ["run", str(investigation.yaml), *options, *more]


@in_process
def test_run_verify_and_status_tell_one_story(investigation: Any, capsys: pytest.CaptureFixture[str]) -> None:
    investigation.add("01_n")
    investigation.add("02_n", verdict="INCONCLUSIVE", reason="npu-dry has no numbers")
    out = str(investigation.out)
    assert main(words(investigation)) == 0
    printed = capsys.readouterr()
    assert printed.out == (
        f"PASS: 1 of 2 phases pass; INCONCLUSIVE: 02_n (hits: npu-dry has no numbers); evidence: {out}\n"
    )
    lines = printed.err.splitlines()
    assert lines[0] == "[1/2] 01_n ..."
    assert lines[3].startswith("[2/2] 02_n ... INCONCLUSIVE ")
    assert lines[3].endswith(" s")
    assert main(["verify", out]) == 0
    assert capsys.readouterr().out == f"verified: {out} (phases: 01 PASS, 02 INCONCLUSIVE)\n"
    assert main(["status", out, "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert [row["verdict"] for row in status["notebooks"]] == ["PASS", "INCONCLUSIVE"]
    assert main(words(investigation, "--strict", "--resume")) == 1
    assert capsys.readouterr().err.splitlines()[1] == "[1/2] 01_n ... PASS kept"
    manifest = json.loads((investigation.out / "manifest.json").read_text())
    assert manifest["command"] == ["fusionkit", *words(investigation, "--strict", "--resume")]


@in_process
def test_a_failed_gate_is_named_with_its_reason(
    investigation: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    investigation.add("06_n", verdict="FAIL", reason="13 expected, 12 hit")
    investigation.add("07_n")
    assert main(words(investigation, "--json")) == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["exit_code"], result["not_run"]) == (1, ["07_n"])
    assert main(words(investigation)) == 1
    assert capsys.readouterr().out == (
        "FAIL at 06_n (hits: 13 expected, 12 hit); did not run: 07_n; evidence: " + f"{investigation.out}\n"
    )
    assert main(["status", str(investigation.out)]) == 0
    assert "07_n  did not run\n" in capsys.readouterr().out


@in_process
def test_contradicted_evidence_exits_1(investigation: Any, capsys: pytest.CaptureFixture[str]) -> None:
    investigation.add("01_n")
    main(words(investigation))
    (investigation.out / "01_n.html").write_text("other")
    capsys.readouterr()
    assert main(["verify", str(investigation.out), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["outcome"] == "contradicted"
    assert found["findings"] == [
        {"path": "01_n.html", "what": "changed since the run wrote it", "effect": "contradicted"}
    ]


@in_process
@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["-P", "subjct=flux"], "did you mean subject"),
        (["-P", "subject"], "must be name=value"),
        (["--notebooks", "01,09"], "--notebooks 09"),
        (["--timeout", "0"], "must be above 0"),
        (["--timeout", "soon"], "argument --timeout: invalid float value"),
        (["--no-such-option"], "unrecognized arguments"),
        (["--res"], "unrecognized arguments: --res"),
    ],
)
def test_misuse_exits_2_with_one_line_and_nothing_written(
    investigation: Any, capsys: pytest.CaptureFixture[str], more: list[str], told: str
) -> None:
    investigation.add("01_n")
    try:
        code: Any = main(words(investigation, *more))
    except SystemExit as end:
        code = end.code
    printed = capsys.readouterr()
    assert code == 2
    assert told in printed.err
    assert printed.err.startswith("fusionkit")
    assert printed.err.count("\n") == 1
    assert printed.out == ""
    assert not investigation.out.parent.exists()


@pytest.mark.parametrize("command", ["verify", "status"])
def test_a_folder_that_no_run_wrote_exits_2(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([command, str(tmp_path)]) == 2
    assert "not a run folder" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_help_with_an_example(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([command.name, "--help"])
    assert end.value.code == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"example: {command.example}" in printed
    assert command.example.startswith(f"fusionkit {command.name} ")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom fusionkit.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'papermill', 'nbconvert', 'nbformat', 'pandas', 'numpy', 'psutil'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.notebook
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_kernel_and_exits_130(investigation: Any, number: signal.Signals) -> None:
    pid_file = investigation.yaml.parent / "pid"
    cell = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    investigation.add("01_n", cell)
    command = [sys.executable, "-m", "fusionkit.cli", *words(investigation)]
    # A job that a shell started in the background ignores SIGINT, and so would this process.
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **heard) as process:
        for _ in range(600):
            if (pid_file.exists() and pid_file.read_text()) or process.poll() is not None:
                break
            time.sleep(0.1)
        process.send_signal(number)
        _, errors = process.communicate(timeout=180)  # a busy machine: an interrupt that is lost ends with 0
    assert process.returncode == 130
    assert errors.splitlines() == ["[1/1] 01_n ...", "fusionkit: interrupted"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    assert json.loads((investigation.out / "manifest.json").read_text())["return_code"] == 130


NEAR = """
import contextlib, io, json, sys
from fusionkit.cli import main
rows = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    rows.append([code, err.getvalue(), "torch" in sys.modules])
print(json.dumps(rows))
"""
WRONG = {
    "hist flux": "'hist' is unknown; did you mean 'hits'?",
    "kernels dif a b": "'dif' is unknown; did you mean 'diff'?",
    "api serch x": "'serch' is unknown; did you mean 'search'?",
    "hits fluxx": "unknown subject 'fluxx'; did you mean 'flux'?",
    "explain quen3 --pattern rope": "unknown subject 'quen3'; did you mean 'qwen3'?",
    "hits nothing-like-it": "known: deepseek-v3, flux",
    "hits nowhere.json": "nowhere.json: no such capsule",
    "hits flux --pattern gellu": "unknown pattern 'gellu'; did you mean 'gelu'?",
    "numeric flux --pattern rms_norm,ropes": "unknown pattern 'ropes'; did you mean 'rope'?",
    "isolate flux --pattern rmsnorm": "unknown pattern 'rmsnorm'; did you mean 'rms_norm'?",
    "probe flux --pattern rmsnorm": "unknown pattern 'rmsnorm'; did you mean 'rms_norm'?",
    "repair flux --pattern nowhere.py --out a.py": "nowhere.py: cannot read",
    "lint nowhere.py": "nowhere.py: cannot read",
    "hits flux --pattern ,": "--pattern names no pattern",
    "hits flux --dtype bf61": "unknown dtype 'bf61'; use one of: bfloat16",
    "hits flux --target gpu": "target 'gpu' is unknown; choose one of cpu",
    "doctor --target gpu": "target 'gpu' is unknown; choose one of cpu",
    "hits flux --size tinny": "'tinny' is unknown; did you mean 'tiny'?",
    "hits flux --traget cpu": "unrecognized arguments: --traget cpu; did you mean '--target'?",
}


def test_names_are_checked_before_torch_is_imported_and_the_nearest_one_is_named() -> None:
    given = json.dumps([words.split() for words in WRONG])
    done = subprocess.run(
        [sys.executable, "-c", NEAR, given],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    for (words, what), (code, err, torch) in zip(WRONG.items(), json.loads(done.stdout), strict=True):
        assert what in err, words
        assert (code, err.count("\n"), torch) == (2, 1, False), words
