"""The stand-in's C source and its compilation."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest
from dry_processes import unavailable
from hypothesis import given
from hypothesis import strategies as st

from fusionkit.errors import MisuseError
from fusionkit.npu.dry.behaviours import BEHAVIOURS, REFUSAL, REFUSED
from fusionkit.npu.dry.standin import c_source, compile_standin, compiler, is_compiled
from fusionkit.npu.dry.symbols import WantedSymbols

SOC = "Ascend910B1"


def wanted(*linked: str, named: tuple[str, ...] = ()) -> WantedSymbols:
    return WantedSymbols(("libone.so", "libtwo.so"), linked, frozenset(named))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every function of the table, and three that are not in it."""
    try:
        compiler()
    except MisuseError as error:
        unavailable(str(error))
    folder = tmp_path_factory.mktemp("compiled")
    named = ("aclnnLookedUp", *BEHAVIOURS)
    source = c_source(wanted("aclopCompileAndExecute", "rtSomething", "_Z7mangledv", named=named), SOC)
    compile_standin(source, ("libone.so", "libtwo.so"), folder)
    return folder


@pytest.fixture(scope="module")
def library(compiled: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(compiled / "libone.so"))


class TestSource:
    def test_a_linked_name_outside_the_table_fails(self, library: ctypes.CDLL) -> None:
        assert REFUSED != 0
        for name in ("aclopCompileAndExecute", "rtSomething", "_Z7mangledv"):
            assert getattr(library, name)() == REFUSED

    def test_the_code_is_not_the_one_that_torch_npu_takes_for_a_warning(self) -> None:
        assert REFUSED != 207000  # ACL_ERROR_RT_FEATURE_NOT_SUPPORT

    def test_a_name_that_is_only_looked_up_exists_only_if_the_table_has_it(
        self, library: ctypes.CDLL
    ) -> None:
        assert library.aclInit() == 0
        with pytest.raises(AttributeError):
            _ = library.aclnnLookedUp

    def test_the_table_adds_nothing_that_the_wheel_does_not_name(self) -> None:
        source = c_source(wanted("aclInit", named=("aclrtMalloc",)), SOC)
        assert "aclInit(" in source
        assert "aclrtMalloc(" in source
        assert sum(f" {name}(" in source for name in BEHAVIOURS) == 2

    def test_what_is_no_name_in_c_is_left_out(self) -> None:
        assert "odd" not in c_source(wanted("odd.name", "aclInit"), SOC)

    @given(
        st.one_of(st.text(max_size=12), st.from_regex(r"Ascend\w*[^A-Za-z0-9_]+\w*", fullmatch=True)).filter(
            lambda name: not re.fullmatch(r"Ascend[A-Za-z0-9_]+", name)
        )
    )
    def test_a_name_that_is_no_soc_is_refused(self, name: str) -> None:
        with pytest.raises(MisuseError, match=r"is none; give one such as Ascend910B1 in FUSIONKIT_SOC"):
            c_source(wanted("aclInit"), name)


class TestBehaviour:
    def test_one_device_with_a_name_and_memory(self, library: ctypes.CDLL) -> None:
        library.aclrtGetSocName.restype = ctypes.c_char_p
        library.aclGetRecentErrMsg.restype = ctypes.c_char_p
        assert library.aclrtGetSocName() == SOC.encode()
        assert library.aclGetRecentErrMsg() == REFUSAL.encode()
        count, device = ctypes.c_uint(7), ctypes.c_int(7)
        assert (library.aclrtGetDeviceCount(ctypes.byref(count)), count.value) == (0, 1)
        assert (library.aclrtGetDevice(ctypes.byref(device)), device.value) == (0, 0)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        assert library.aclrtGetMemInfo(0, ctypes.byref(free), ctypes.byref(total)) == 0
        assert free.value == total.value == 64 * 2**30

    @pytest.mark.parametrize("name", ["aclrtMalloc", "aclrtMallocAlign32", "aclrtMallocHost"])
    @pytest.mark.parametrize("size", [0, 1, 100_000])
    def test_memory_is_aligned_and_can_be_written(self, library: ctypes.CDLL, name: str, size: int) -> None:
        memory = ctypes.c_void_p()
        assert getattr(library, name)(ctypes.byref(memory), ctypes.c_size_t(size), 0) == 0
        assert memory.value
        assert memory.value % 512 == 0
        ctypes.memset(memory, 1, size)
        assert library.aclrtFree(memory) == 0

    def test_memory_that_is_not_there_is_refused(self, library: ctypes.CDLL) -> None:
        memory = ctypes.c_void_p()
        assert library.aclrtMalloc(ctypes.byref(memory), ctypes.c_size_t(2**62), 0) != 0

    @pytest.mark.parametrize(
        "name", ["aclrtCreateStream", "aclrtCreateEventWithFlag", "aclrtGetCurrentContext"]
    )
    def test_handles_are_not_null(self, library: ctypes.CDLL, name: str) -> None:
        handle = ctypes.c_void_p()
        assert getattr(library, name)(ctypes.byref(handle)) == 0
        assert handle.value

    def test_a_recorded_event_is_past(self, library: ctypes.CDLL) -> None:
        recorded, waited = ctypes.c_int(7), ctypes.c_int(7)
        assert library.aclrtRecordEvent(None, None) == 0
        assert library.aclrtQueryEventStatus(None, ctypes.byref(recorded)) == 0
        assert library.aclrtQueryEventWaitStatus(None, ctypes.byref(waited)) == 0
        assert (recorded.value, waited.value) == (1, 0)  # aclrtEventRecordedStatus, aclrtEventWaitStatus

    def test_what_would_hand_back_an_object_hands_back_none(self, library: ctypes.CDLL) -> None:
        for name in ("aclCreateTensorDesc", "aclCreateDataBuffer", "aclopCreateAttr"):
            function = getattr(library, name)
            function.restype = ctypes.c_void_p
            assert function() is None


class TestCompilation:
    def test_each_library_is_there_under_its_own_name(self, compiled: Path) -> None:
        assert {path.name for path in compiled.glob("*.so")} == {"libone.so", "libtwo.so"}
        assert is_compiled(compiled)

    @pytest.mark.parametrize("damage", ["missing", "changed", "no record", "no folder"])
    def test_damage_is_noticed(self, tmp_path: Path, damage: str) -> None:
        folder = tmp_path / "made"
        folder.mkdir()
        (folder / "fake-cc").write_text(
            '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho library > "$2"\n'
        )
        (folder / "fake-cc").chmod(0o755)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CC", str(folder / "fake-cc"))
            compile_standin("", ("libone.so",), folder)
        assert is_compiled(folder)
        if damage == "missing":
            (folder / "libone.so").unlink()
        elif damage == "changed":
            (folder / "libone.so").write_text("Library\n")
        elif damage == "no record":
            (folder / "sha256.json").unlink()
        assert not is_compiled(tmp_path / "other" if damage == "no folder" else folder)

    def test_without_a_compiler_the_package_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CC", raising=False)
        with pytest.raises(
            MisuseError, match=r"needs a C compiler and finds none .*apt-get install gcc"
        ) as caught:
            compiler()
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("named", "expected"),
        [
            ("my-cc -m64", ["my-cc", "-m64"]),
            ("absent-cc", ["cc"]),
            ("", ["cc"]),
            ("'unbalanced", ["cc"]),
        ],
    )
    def test_the_named_compiler_comes_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, expected: list[str]
    ) -> None:
        for name in ("my-cc", "cc"):
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv("CC", named)
        assert compiler() == expected

    @pytest.mark.parametrize(
        ("script", "said"),
        [
            (
                "echo 'x.c: In function f:' >&2; echo 'x.c:1: error: no' >&2; echo more >&2; exit 1",
                "x.c:1: error: no",
            ),
            ("echo 'cc: broken' >&2; echo more >&2; exit 1", "cc: broken"),
            ("exit 1", "no message"),
        ],
    )
    def test_the_compilers_complaint_is_one_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
    ) -> None:
        (tmp_path / "bad-cc").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bad-cc").chmod(0o755)
        monkeypatch.setenv("CC", str(tmp_path / "bad-cc"))
        with pytest.raises(MisuseError) as caught:
            compile_standin("", ("libone.so",), tmp_path)
        assert f"cannot compile the stand-in ({said}); on Debian" in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_a_compiler_that_does_not_run_is_one_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "bad-cc").write_text("#!/no/such/shell\n")
        (tmp_path / "bad-cc").chmod(0o755)
        monkeypatch.setenv("CC", str(tmp_path / "bad-cc"))
        with pytest.raises(MisuseError, match=r"bad-cc does not run \("):
            compile_standin("", ("libone.so",), tmp_path)
