"""The cache: made whole or not at all, by several processes at once, after one was killed, and cleared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dry_processes import process_environment, run_dry_script, unavailable
from tiny_wheels import RELEASE, make_wheel

import fusionkit.npu.dry.cache as cache
import fusionkit.npu.dry.wheel as wheel_module
from fusionkit.errors import MisuseError
from fusionkit.npu.dry.cache import cache_bytes, clear_cache, is_set_up, prepare, soc_name
from fusionkit.npu.dry.cache_folder import STANDINS, WHEELS, cache_root
from fusionkit.npu.dry.standin import compiler
from fusionkit.npu.dry.wheel import cached_wheel, check_platform
from fusionkit.store import sha256_file

PREPARE = "from fusionkit.npu.dry.cache import prepare; print(prepare().libraries)"
# Unpacks one file of the wheel, says so, and is never done.
PREPARE_HALF = """
import sys, time
from pathlib import Path
import fusionkit.npu.dry.cache as cache
def unpack(wheel, folder):
    (folder / "torch_npu").mkdir()
    (folder / "torch_npu" / "__init__.py").write_text("")
    Path(sys.argv[1]).touch()
    time.sleep(600)
cache.unpack = unpack
cache.prepare()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        check_platform()
    except MisuseError as error:
        unavailable(str(error))
    return make_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def root(tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and the tiny wheel named by the setting."""
    monkeypatch.setenv("FUSIONKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FUSIONKIT_TORCH_NPU_WHEEL", str(wheel))
    monkeypatch.delenv("FUSIONKIT_SOC", raising=False)
    return tmp_path / "cache"


def compiler_that(folder: Path, name: str, *lines: str) -> Path:
    """A C compiler that runs shell lines first."""
    path = folder / name
    path.write_text("\n".join(["#!/bin/sh", *lines, f'exec {" ".join(compiler())} "$@"', ""]))
    path.chmod(0o755)
    return path


def steps() -> list[str]:
    """The slow steps that preparing took."""
    told: list[str] = []
    prepare(told.append)
    return told


def files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


class TestPrepare:
    def test_the_first_time_makes_and_the_second_finds(self, root: Path, wheel: Path) -> None:
        assert steps() == [f"unpacking {wheel.name}", "compiling the stand-in for Ascend910B1"]
        assert steps() == []
        prepared = prepare()
        assert prepared.version == RELEASE
        assert prepared.soc_name == "Ascend910B1"
        assert [path.name for path in prepared.libraries] == ["libabsent_acl.so"]
        assert (prepared.package_root / "torch_npu" / "_C.so").is_file()
        assert all(path.is_relative_to(root) for path in (prepared.package_root, *prepared.libraries))

    def test_an_unchanged_package_is_hashed_once(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        prepare()
        calls: list[Path] = []
        hashed = wheel_module.is_whole
        monkeypatch.setattr(wheel_module, "is_whole", lambda *given: calls.append(given[0]) or hashed(*given))
        prepare()
        prepare()
        assert len(calls) == 1
        (path,) = root.glob("packages/*/torch_npu/_C.so")
        path.write_bytes(path.read_bytes())
        prepare()
        prepare()
        assert len(calls) == 2

    def test_another_soc_is_another_stand_in(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = prepare().libraries
        monkeypatch.setenv("FUSIONKIT_SOC", "Ascend910_9391")
        assert soc_name() == "Ascend910_9391"
        assert steps() == ["compiling the stand-in for Ascend910_9391"]
        assert prepare().libraries != first

    def test_a_name_that_is_no_soc_leaves_no_stand_in(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FUSIONKIT_SOC", '"; evil')
        with pytest.raises(MisuseError, match="in FUSIONKIT_SOC"):
            prepare()
        assert list(root.glob(f"{STANDINS}/*")) == []

    @pytest.mark.parametrize(
        ("changed", "made_again"),
        [("packages/*/torch_npu/_C.so", "unpacking"), ("stand-ins/*/libabsent_acl.so", "compiling")],
    )
    def test_a_changed_entry_is_made_again(self, root: Path, changed: str, made_again: str) -> None:
        prepare()
        (path,) = root.glob(changed)
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        assert [step.split()[0] for step in steps()] == [made_again]
        assert path.read_bytes() == whole
        assert steps() == []

    def test_another_wheel_of_the_same_name_takes_its_place(
        self, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        prepare()
        monkeypatch.setenv("FUSIONKIT_TORCH_NPU_WHEEL", str(make_wheel(tmp_path, text="another build")))
        assert [step.split()[0] for step in steps()] == ["unpacking"]
        assert (prepare().package_root / "torch_npu" / "text.py").read_text() == "another build"

    def test_a_failed_compilation_leaves_nothing_half_made(
        self, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setenv("CC", str(compiler_that(tmp_path, "bad-cc", "echo 'x.c: error: no' >&2", "exit 1")))
            with pytest.raises(MisuseError, match=r"cannot compile the stand-in \(x\.c: error: no\)"):
                prepare()
        assert list(root.glob(f"{STANDINS}/*")) == list(root.glob(f"{STANDINS}/.*")) == []
        assert [step.split()[0] for step in steps()] == ["compiling"]

    def test_a_cached_wheel_is_taken_and_a_fetched_one_kept(
        self, root: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("FUSIONKIT_TORCH_NPU_WHEEL")
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
        assert not is_set_up()
        assert [step.split()[0] for step in steps()] == ["fetching", "unpacking", "compiling"]
        monkeypatch.delenv("PIP_FIND_LINKS")
        assert is_set_up()
        assert steps() == []

    def test_a_cached_wheel_of_another_torch_is_no_set_up(
        self, root: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert is_set_up()
        monkeypatch.delenv("FUSIONKIT_TORCH_NPU_WHEEL")
        other = root / WHEELS / wheel.name.replace(RELEASE, "1.2.3")
        other.parent.mkdir(parents=True)
        other.touch()
        other.with_name(f"{other.name}.sha256").write_text(sha256_file(other))
        assert not is_set_up()


class TestFolder:
    def test_the_setting_names_it(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("FUSIONKIT_CACHE", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert cache_root() == tmp_path / "xdg" / "fusionkit"
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to("real")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("FUSIONKIT_CACHE", "link")
        assert cache_root() == tmp_path / "real"  # as /proc/self/maps names what is loaded from it

    @pytest.mark.parametrize("use", [prepare, clear_cache])
    def test_one_that_cannot_be_written_is_one_line(self, root: Path, use: object) -> None:
        root.write_text("a file")
        with pytest.raises(MisuseError) as caught:
            use()  # type: ignore[operator]
        assert str(caught.value).startswith(f"cache {root} cannot be written (")
        assert str(caught.value).endswith("name another folder in FUSIONKIT_CACHE")
        assert "\n" not in str(caught.value)
        assert root.read_text() == "a file"

    def test_its_size_and_clearing_it(self, root: Path) -> None:
        assert cache_bytes() == 0
        prepare()
        whole = sum((root / name).stat().st_size for name in files(root))
        assert 0 < cache_bytes() == whole
        clear_cache()
        assert files(root) == [".lock"]
        assert cache_bytes() == 0
        assert len(steps()) == 2

    def test_clearing_leaves_what_is_not_the_caches(self, root: Path) -> None:
        prepare()
        (root / "thesis").mkdir()
        (root / "thesis" / "chapter.txt").write_text("mine")
        (root / "notes.txt").write_text("mine")
        clear_cache()
        assert files(root) == [".lock", "notes.txt", "thesis/chapter.txt"]


def start(code: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        env=process_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kill_when(process: subprocess.Popen[str], sign: Path) -> None:
    """kill -9 the process and its children as soon as the file `sign` is there."""
    while not sign.exists() and process.poll() is None:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert sign.exists()


class TestSeveralProcesses:
    def test_two_at_once_on_an_empty_cache_make_it_once(
        self, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls = tmp_path / "calls"
        slow = compiler_that(tmp_path, "slow-cc", f"echo call >> {calls}", "sleep 0.5")
        monkeypatch.setenv("CC", str(slow))
        processes = [start(PREPARE) for _ in range(2)]
        outputs = [process.communicate() for process in processes]
        assert [process.returncode for process in processes] == [0, 0], outputs
        assert outputs[0][0] == outputs[1][0]
        assert "libabsent_acl.so" in outputs[0][0]
        assert calls.read_text().splitlines() == ["call"]

    def test_one_that_is_killed_while_compiling_is_repaired_by_the_next(
        self, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sign = tmp_path / "compiling"
        with monkeypatch.context() as patch:
            patch.setenv("CC", str(compiler_that(tmp_path, "endless-cc", f"touch {sign}", "sleep 600")))
            kill_when(start(PREPARE), sign)
        assert len(list(root.glob(f"{STANDINS}/.making-*/standin.c"))) == 1
        assert [step.split()[0] for step in steps()] == ["compiling"]
        assert list(root.glob("*/.making-*")) == []
        assert steps() == []

    def test_one_that_is_killed_while_unpacking_is_repaired_by_the_next(
        self, root: Path, tmp_path: Path
    ) -> None:
        sign = tmp_path / "unpacking"
        kill_when(start(PREPARE_HALF, str(sign)), sign)
        assert len(list(root.glob("packages/.making-*/torch_npu/__init__.py"))) == 1
        assert [step.split()[0] for step in steps()] == ["unpacking", "compiling"]
        assert list(root.glob("*/.making-*")) == []

    @pytest.mark.dry
    def test_two_activate_at_once_on_an_empty_cache(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        script = Path(__file__).with_name("activation_alone.py")
        run_dry_script(script)  # fetches the wheel, where it is not there yet
        named = os.environ.get("FUSIONKIT_TORCH_NPU_WHEEL")
        wheel = Path(named) if named else cached_wheel(cache_root() / WHEELS, RELEASE)
        assert wheel is not None
        monkeypatch.setenv("FUSIONKIT_TORCH_NPU_WHEEL", str(wheel))
        monkeypatch.setenv("FUSIONKIT_CACHE", str(tmp_path / "cache"))
        code = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
        processes = [start(code) for _ in range(2)]
        outputs = [process.communicate() for process in processes]
        assert [process.returncode for process in processes] == [0, 0], outputs
        lines = [out.splitlines()[-1] for out, _ in outputs]
        assert lines[0] == lines[1]
        assert str(tmp_path / "cache") in lines[0]
        assert cache.cache_bytes() > 1e8


def test_a_torch_that_was_not_tried_is_refused_before_anything_is_made(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache.torch, "__version__", "2.12.0+cpu")
    with pytest.raises(
        MisuseError, match=r"^target npu-dry: torch 2\.12\.0\+cpu was not tried with torch_npu;"
    ):
        prepare()
    assert not root.exists()


@pytest.mark.parametrize("record", ["{}", "[]"])
def test_a_damaged_record_of_the_stand_in_is_made_again(root: Path, record: str) -> None:
    libraries = prepare().libraries
    (libraries[0].parent / "sha256.json").write_text(record)
    for path in libraries:
        path.unlink()
    assert prepare().libraries == libraries
    assert all(path.is_file() for path in libraries)


def test_an_installed_package_without_its_extension_is_passed_by(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "torch_npu"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / f"torch_npu-{RELEASE}.dist-info").mkdir()
    (package.parent / f"torch_npu-{RELEASE}.dist-info" / "METADATA").write_text(
        f"Name: torch-npu\nVersion: {RELEASE}\n"
    )
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.delenv("FUSIONKIT_TORCH_NPU_WHEEL")
    assert not is_set_up()
    (package / "_C.so").touch()
    assert is_set_up()
