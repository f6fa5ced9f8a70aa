"""A stand-in starts in a child process first, so that libraries that do not go together end that one only."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dry_processes import process_environment, run_dry_script, run_script

import fusionkit.npu.dry.starting as starting
from fusionkit.errors import MisuseError
from fusionkit.npu.dry.cache import Prepared
from fusionkit.npu.dry.cache_folder import STANDINS
from fusionkit.npu.dry.starting import try_first_start

HERE = Path(__file__).parent


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    return Prepared(
        tmp_path / "package", (tmp_path / "libone.so", tmp_path / "libtwo.so"), "2.13.0", "Ascend910B1"
    )


def test_a_child_imports_what_its_parent_would(tmp_path: Path) -> None:
    (tmp_path / "secrets.py").write_text("raise ImportError('my own file')")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "of_mine.py").write_text("import secrets, sys; print(*sys.argv[1:], __name__)")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'lib')!r}); import subprocess;"
        " from fusionkit.processes import module_command;"
        " print(subprocess.run(module_command('of_mine', 'a', 'b'), capture_output=True, text=True))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=process_environment(),
    )
    assert "stdout='a b __main__\\n'" in done.stdout, done.stdout + done.stderr


class TestWithoutAProcess:
    """What became of the child is replaced."""

    @pytest.fixture
    def children(self, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
        started: list[list[str]] = []

        def run(command: list[str], **_options: Any) -> subprocess.CompletedProcess[str]:
            started.append(command)
            return subprocess.CompletedProcess(command, *self.ends.pop(0))

        monkeypatch.setattr(starting.subprocess, "run", run)
        return started

    ends: list[tuple[int, str, str]]

    def test_a_start_that_worked_is_not_tried_again(
        self, prepared: Prepared, children: list[list[str]]
    ) -> None:
        self.ends = [(0, "step: importing torch_npu\n", "")]
        try_first_start(prepared)
        try_first_start(prepared)
        assert len(children) == 1
        assert children[0][-5:] == [
            str(prepared.package_root),
            "2.13.0",
            "Ascend910B1",
            *map(str, prepared.libraries),
        ]

    @pytest.mark.parametrize(
        ("code", "out", "err", "reason"),
        [
            (
                -6,
                "step: loading libone.so\nstep: importing torch_npu\n",
                "terminate called\n  what():  Duplicated key\nx\n",
                "the process ended with SIGABRT while importing torch_npu (Duplicated key)",
            ),
            (
                -11,
                "step: starting the device\n",
                "",
                "with SIGSEGV while starting the device (it said nothing)",
            ),
            (
                1,
                "",
                "Traceback\nImportError: no torch\n",
                "with exit code 1 while importing torch (ImportError: no torch)",
            ),
            (
                2,
                "step: importing torch_npu\n",
                "noise\ntarget npu-dry: torch_npu 2.13.0 does not start (why)\n",
                "(why)",
            ),
        ],
    )
    def test_a_child_that_ends_badly_is_one_line_and_tried_again(
        self, prepared: Prepared, children: list[list[str]], code: int, out: str, err: str, reason: str
    ) -> None:
        self.ends = [(code, out, err)] * 2
        for _ in range(2):
            with pytest.raises(MisuseError) as caught:
                try_first_start(prepared)
            assert str(caught.value).startswith("target npu-dry: torch_npu 2.13.0 does not start")
            assert reason in str(caught.value)
            assert "\n" not in str(caught.value)
        assert len(children) == 2

    def test_a_child_that_does_not_end_is_one_line(
        self, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def run(command: list[str], timeout: float, **_options: Any) -> None:
            raise subprocess.TimeoutExpired(command, timeout)

        monkeypatch.setattr(starting.subprocess, "run", run)
        with pytest.raises(MisuseError, match=r"does not start on the stand-in within 900 s"):
            try_first_start(prepared)


@pytest.fixture(scope="module")
def other_build(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which torch_npu's keys are registered before it, as in a CUDA build, and an empty cache."""
    sys.path.insert(0, str(HERE))
    from configuration_keys import write_registering_site

    seen = run_dry_script(HERE / "keys_session.py")
    assert seen["started"] is True
    assert len(seen["keys"]) > 5, "the keys went into the stand-in's own set"
    folder = tmp_path_factory.mktemp("other-build")
    write_registering_site(folder, seen["keys"])
    path = process_environment({})["PYTHONPATH"]
    return {
        "PYTHONPATH": f"{folder}:{path}",
        "FUSIONKIT_CACHE": str(folder / "cache"),
        "FUSIONKIT_TORCH_NPU_WHEEL": seen["wheel"],
    }


@pytest.mark.dry
class TestKeysThatTorchHasAlready:
    def test_without_the_stand_ins_own_set_the_child_aborts_and_the_process_lives(
        self, other_build: dict[str, str]
    ) -> None:
        seen = run_script(HERE / "unremedied_session.py", env=other_build)
        kind, text = seen["npu-dry"]
        assert kind == "MisuseError"
        assert re.search(
            r"the process ended with SIGABRT while importing torch_npu \(.*Duplicated key", text
        ), text
        assert "\n" not in text
        assert seen["target"] is None
        shutil.rmtree(Path(other_build["FUSIONKIT_CACHE"]) / STANDINS)

    def test_with_it_the_target_is_there(self, other_build: dict[str, str]) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "fusionkit", "doctor", "--target", "npu-dry", "--json"],
            capture_output=True,
            text=True,
            env={k: v for k, v in process_environment(other_build).items() if k != "PYTHONUNBUFFERED"},
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.startswith("{"), (
            "what torch_npu prints when it is imported stays out of the result"
        )
        assert json.loads(done.stdout)["npu-dry"]["available"] is True
