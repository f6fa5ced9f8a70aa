"""fusionkit doctor: which targets there are, and one clear line for each reason why one is not."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from dry_processes import process_environment, run_script, unavailable
from tiny_wheels import RELEASE, TAG

import fusionkit.npu.doctor
from fusionkit.cli import main
from fusionkit.config import TARGETS
from fusionkit.errors import MisuseError
from fusionkit.npu.doctor import TargetState, target_states
from fusionkit.npu.dry.cache import is_set_up
from fusionkit.npu.dry.wheel import check_platform

NO_INDEX = {
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_CONFIG_FILE": "/dev/null",
    "PIP_FIND_LINKS": "",
    "PIP_EXTRA_INDEX_URL": "",
    "PIP_NO_INDEX": None,
    "PIP_RETRIES": "1",
    "FUSIONKIT_TORCH_NPU_WHEEL": None,
}
TRY_DRY = ["--target", "npu-dry"]


def cases(folder: Path) -> dict[str, tuple[list[str], dict[str, str | None]]]:
    """Name -> arguments and environment; none of them makes a target available."""
    empty, cache = folder / "bin", folder / "cache"
    empty.mkdir()
    (folder / "file").write_text("a file")
    (cache / "wheels").mkdir(parents=True)
    (cache / "wheels" / f"torch_npu-1.2.3-{TAG}.whl").write_bytes(b"0" * 1000)
    own = {"FUSIONKIT_CACHE": str(cache)}
    other = folder / f"torch_npu-1.2.3-{TAG}.whl"
    other.touch()
    return {
        "no compiler": (TRY_DRY, own | {"PATH": str(empty), "CC": None}),
        "no registry": (TRY_DRY, own | NO_INDEX),
        "no registry, JSON": ([*TRY_DRY, "--json"], own | NO_INDEX),
        "other version": (TRY_DRY, own | {"FUSIONKIT_TORCH_NPU_WHEEL": str(other)}),
        "no wheel": (TRY_DRY, own | {"FUSIONKIT_TORCH_NPU_WHEEL": str(folder / "absent.whl")}),
        "no folder": (TRY_DRY, {"FUSIONKIT_CACHE": str(folder / "file")}),
        "unknown": (["--target", "gpu"], own),
        "clear": ([*TRY_DRY, "--clear-cache", "--json"], own | NO_INDEX),
        "no npu": (["--target", "npu"], own),  # last: a machine may have one
    }


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Exit code, output and error of each case, and `folder`."""
    try:
        check_platform()
    except MisuseError as error:
        unavailable(str(error))
    folder = tmp_path_factory.mktemp("doctor")
    table = cases(folder)
    script = Path(__file__).with_name("doctor_session.py")
    answers = run_script(script, json.dumps(list(table.values())))
    return dict(zip(table, answers, strict=True)) | {"folder": folder}


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (
            "no compiler",
            "npu-dry   not available: target npu-dry needs a C compiler and finds none (CC, cc, gcc, clang);"
            " on Debian and Ubuntu: apt-get install gcc libc6-dev",
        ),
        (
            "no registry",
            f"npu-dry   not available: target npu-dry: pip finds no torch-npu {RELEASE} (the package index does not"
            " answer); check the network and pip's index, or name a wheel in FUSIONKIT_TORCH_NPU_WHEEL",
        ),
        (
            "other version",
            f"npu-dry   not available: {{folder}}/torch_npu-1.2.3-{TAG}.whl: torch-npu 1.2.3 does not fit the"
            f" installed torch {torch.__version__}; give a wheel of torch-npu {RELEASE}",
        ),
        ("no wheel", "npu-dry   not available: {folder}/absent.whl: not a wheel's name (*)"),
        (
            "no folder",
            "npu-dry   not available: cache {folder}/file cannot be written (File exists); name another folder in"
            " FUSIONKIT_CACHE",
        ),
        (
            "no npu",
            "npu       not available: target npu: torch_npu does not start (*); install CANN and the torch-npu of"
            " this torch, or use target npu-dry",
        ),
    ],
)
def test_an_unavailable_target_is_one_line_and_exit_2(failed: dict[str, Any], case: str, said: str) -> None:
    if case == "no npu" and importlib.util.find_spec("torch_npu"):
        pytest.skip("torch_npu is installed")
    code, out, err = failed[case]
    expected = re.escape(said.replace("{folder}", str(failed["folder"]))).replace(r"\*", ".+") + "\n"
    assert re.fullmatch(expected, out), out
    assert (code, err) == (2, "")


def test_an_unknown_target_is_misuse(failed: dict[str, Any]) -> None:
    code, out, err = failed["unknown"]
    assert (code, out) == (2, "")
    assert err == "fusionkit: target 'gpu' is unknown; choose one of cpu, npu-dry, npu\n"


def test_json_tells_the_reason_and_the_cache(failed: dict[str, Any]) -> None:
    code, out, err = failed["no registry, JSON"]
    told = json.loads(out)
    assert (code, err) == (2, "")
    assert told["npu-dry"]["available"] is False
    assert "the package index does not answer" in told["npu-dry"]["what"]
    assert told["cache"] == {"path": str(failed["folder"] / "cache"), "bytes": 1000}


def test_the_cache_is_cleared_before_the_target_is_tried(failed: dict[str, Any]) -> None:
    code, out, _ = failed["clear"]
    assert code == 2
    assert json.loads(out)["cache"]["bytes"] == 0
    assert [path.name for path in (failed["folder"] / "cache").rglob("*") if path.is_file()] == [".lock"]
    assert (failed["folder"] / "file").read_text() == "a file"


def doctor(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fusionkit.cli", "doctor", *words]
    return subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=process_environment()
    )


@pytest.mark.dry
def test_without_a_target_there_is_a_line_for_each_and_one_for_the_cache() -> None:
    if not is_set_up():
        doctor(*TRY_DRY)
    done = doctor()
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    if " not available: " in lines[1]:
        unavailable(lines[1].partition(": ")[2])
    build = "CPU build" if torch.version.cuda is None else f"CUDA {torch.version.cuda} build"
    torch_build = f"torch {torch.__version__} ({build})"
    assert lines[0] == f"cpu       available: {torch_build}, npu:: ops as CPU reference kernels"
    assert re.fullmatch(
        rf"npu-dry   available: torch_npu {re.escape(RELEASE)}\S* \((installed|cached wheel)\) as Ascend\w+ on a stand-in"
        rf" for CANN, {re.escape(torch_build)}: graphs, no numbers",
        lines[1],
    )
    assert lines[2].startswith("npu       ")
    assert re.fullmatch(r"cache of npu-dry: \S+, \d+ MB; --clear-cache removes it", lines[3])
    assert len(lines) == 4


class TestWithoutAProcess:
    """States are found out by processes; here the processes are replaced."""

    @pytest.fixture
    def processes(self, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
        asked: list[list[str]] = []

        def run(command: list[str], **_options: Any) -> subprocess.CompletedProcess[str]:
            asked.append(command)
            name = command[-1]
            out, code = {"cpu": ("cpu       available: torch: all", 0), "npu-dry": ("", -6)}[name]
            return subprocess.CompletedProcess(command, code, out, "Fatal error\nAborted: core dumped\n")

        monkeypatch.setattr(fusionkit.npu.doctor.subprocess, "run", run)
        return asked

    def test_each_target_is_tried_in_its_own_process(
        self, processes: list[list[str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fusionkit.npu.doctor, "is_set_up", lambda: True)
        states = {state.target: state for state in target_states()}
        assert list(states) == list(TARGETS)
        assert [command[-3:] for command in processes] == [
            ["doctor", "--target", "cpu"],
            ["doctor", "--target", "npu-dry"],
        ]
        assert states["cpu"] == TargetState("cpu", True, "torch: all")
        assert states["npu-dry"].available is False
        assert states["npu-dry"].what == "trying it ended with SIGABRT"
        assert states["npu"] == TargetState(
            "npu", False, "torch_npu is not installed; on a machine with an NPU, install CANN and it"
        )

    def test_nothing_is_fetched_unasked(
        self, processes: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("FUSIONKIT_CACHE", str(tmp_path))
        monkeypatch.delenv("FUSIONKIT_TORCH_NPU_WHEEL", raising=False)
        states = {state.target: state for state in target_states()}
        assert [command[-1] for command in processes] == ["cpu"]
        assert states["npu-dry"] == TargetState(
            "npu-dry",
            False,
            "not set up; `fusionkit doctor --target npu-dry` fetches torch-npu (45 MB) and tries it",
        )
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(("works", "code"), [(True, 0), (False, 2)])
    @pytest.mark.parametrize("name", TARGETS)
    def test_the_exit_code_is_that_of_the_target(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        works: bool,
        code: int,
        name: str,
    ) -> None:
        monkeypatch.setattr(
            fusionkit.npu.doctor, "try_target", lambda name, tell: TargetState(name, works, "so")
        )
        assert main(["doctor", "--target", name]) == code
        known = "available" if works else "not available"
        assert capsys.readouterr().out == f"{name:<8}  {known}: so\n"

    @pytest.mark.parametrize(("cpu_works", "code"), [(True, 0), (False, 2)])
    def test_the_exit_code_is_that_of_cpu(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        tmp_path: Path,
        cpu_works: bool,
        code: int,
    ) -> None:
        monkeypatch.setenv("FUSIONKIT_CACHE", str(tmp_path))
        states = [TargetState("cpu", cpu_works, "so"), TargetState("npu-dry", not cpu_works, "or so")]
        monkeypatch.setattr(fusionkit.npu.doctor, "target_states", lambda: states)
        assert main(["doctor", "--json"]) == code
        assert json.loads(capsys.readouterr().out) == {
            "cpu": {"available": cpu_works, "what": "so"},
            "npu-dry": {"available": not cpu_works, "what": "or so"},
            "cache": {"path": os.path.realpath(tmp_path), "bytes": 0},
        }
