"""The wheel: whether it fits, which one is taken, how it is fetched, and whether it is still whole."""

from __future__ import annotations

import platform
import shutil
import zipfile
from pathlib import Path

import pytest
from tiny_wheels import RELEASE, TAG, make_wheel

from fusionkit.errors import MisuseError, RunBrokenError
from fusionkit.npu.dry.wheel import (
    cached_wheel,
    check_platform,
    check_wheel,
    fetch_wheel,
    fitting_wheels,
    is_whole,
    unpack,
)
from fusionkit.store import sha256_file

NEXT = f"{RELEASE.rpartition('.')[0]}.{int(RELEASE.rpartition('.')[2]) + 1}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A wheel of torch's release, and one of its first post-release."""
    folder = tmp_path_factory.mktemp("wheels")
    return {name: make_wheel(folder, version=RELEASE + name) for name in ("", ".post1")}


def keep(wheel: Path, folder: Path, name: str | None = None) -> Path:
    """A wheel in a cache folder, recorded there."""
    folder.mkdir(exist_ok=True)
    kept = Path(shutil.copy(wheel, folder / (name or wheel.name)))
    kept.with_name(f"{kept.name}.sha256").write_text(sha256_file(kept) + "\n")
    return kept


class TestPlatform:
    @pytest.mark.parametrize(
        ("system", "machine"), [("Darwin", "arm64"), ("Windows", "AMD64"), ("Linux", "riscv64")]
    )
    def test_others_are_refused(self, monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
        monkeypatch.setattr(platform, "system", lambda: system)
        monkeypatch.setattr(platform, "machine", lambda: machine)
        with pytest.raises(
            MisuseError, match=f"Linux x86_64 and aarch64, this is {system} {machine}; use the"
        ):
            check_platform()

    @pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
    def test_linux_is_accepted(self, monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
        monkeypatch.setattr(platform, "system", lambda: "Linux")
        monkeypatch.setattr(platform, "machine", lambda: machine)
        check_platform()


class TestCheck:
    @pytest.mark.parametrize("local", ["", "+cpu", "+cu128"])
    def test_torchs_own_release_fits_whatever_its_build(self, made: dict[str, Path], local: str) -> None:
        assert str(check_wheel(made[""], RELEASE + local)) == RELEASE
        assert str(check_wheel(made[".post1"], RELEASE + local)) == f"{RELEASE}.post1"

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            (
                f"torch_npu-1.2.3-{TAG}.whl",
                f"torch-npu 1.2.3 does not fit the installed torch {RELEASE}; give a",
            ),
            (
                f"torch_npu-{NEXT}-{TAG}.whl",
                f"torch-npu {NEXT} does not fit the installed torch {RELEASE}; give a",
            ),
            (f"torch_npu-{RELEASE}.1-{TAG}.whl", "no such file"),
            (f"torch_npu-{RELEASE}-cp27-cp27m-{TAG.split('-')[2]}.whl", "not for Python 3."),
            (f"torch_npu-{RELEASE}-{TAG.rpartition('-')[0]}-win_amd64.whl", "not for Python 3."),
            (f"torch-{RELEASE}-{TAG}.whl", "a wheel of torch, not of torch-npu"),
            ("torch_npu.whl", "not a wheel's name"),
            (f"torch_npu-{RELEASE}.tar.gz", "not a wheel's name"),
            (f"torch_npu-{RELEASE}-{TAG}.whl", "no such file; FUSIONKIT_TORCH_NPU_WHEEL names it"),
        ],
    )
    def test_what_does_not_fit_is_refused_in_one_line(self, tmp_path: Path, name: str, said: str) -> None:
        with pytest.raises(MisuseError) as caught:
            check_wheel(tmp_path / name, RELEASE)
        assert str(caught.value).startswith(f"{tmp_path / name}: ")
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)


class TestCached:
    def test_the_newest_that_fits_wins(self, made: dict[str, Path], tmp_path: Path) -> None:
        keep(made[""], tmp_path)
        newest = keep(made[".post1"], tmp_path)
        tenth = keep(made[".post1"], tmp_path, f"torch_npu-{RELEASE}.post10-{TAG}.whl")
        keep(made[""], tmp_path, f"torch_npu-99.0.0-{TAG}.whl")
        assert cached_wheel(tmp_path, RELEASE) == tenth
        assert [path.name for path in fitting_wheels(tmp_path, RELEASE)][:2] == [tenth.name, newest.name]

    def test_a_changed_file_is_dropped_and_the_next_one_taken(
        self, made: dict[str, Path], tmp_path: Path
    ) -> None:
        whole, changed = keep(made[""], tmp_path), keep(made[".post1"], tmp_path)
        with changed.open("r+b") as stream:
            stream.seek(100)
            byte = stream.read(1)
            stream.seek(100)
            stream.write(bytes([byte[0] ^ 1]))
        assert cached_wheel(tmp_path, RELEASE) == whole
        assert not changed.exists()

    def test_a_file_that_nobody_recorded_is_dropped(self, made: dict[str, Path], tmp_path: Path) -> None:
        half = Path(shutil.copy(made[""], tmp_path))
        assert cached_wheel(tmp_path, RELEASE) is None
        assert not half.exists()

    def test_wheels_of_other_versions_stay(self, made: dict[str, Path], tmp_path: Path) -> None:
        other = keep(made[""], tmp_path, f"torch_npu-1.2.3-{TAG}.whl")
        assert cached_wheel(tmp_path, RELEASE) is None
        assert other.exists()

    def test_no_folder_is_no_wheel(self, tmp_path: Path) -> None:
        assert cached_wheel(tmp_path / "absent", RELEASE) is None


class TestFetch:
    @pytest.fixture
    def offline(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A folder that is all the package index there is."""
        links = tmp_path / "links"
        links.mkdir()
        for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(links))
        return links

    def test_the_newest_of_torchs_release_is_fetched_and_recorded(
        self, made: dict[str, Path], offline: Path, tmp_path: Path
    ) -> None:
        for wheel in made.values():
            shutil.copy(wheel, offline)
        make_wheel(offline, version="99.0.0")
        fetched = fetch_wheel(tmp_path / "wheels", f"{RELEASE}+cpu")
        assert fetched == tmp_path / "wheels" / made[".post1"].name
        assert cached_wheel(tmp_path / "wheels", RELEASE) == fetched
        assert sorted(path.name for path in (tmp_path / "wheels").iterdir()) == [
            fetched.name,
            f"{fetched.name}.sha256",
        ]

    def test_nothing_found_is_one_line_with_pips_reason(self, offline: Path, tmp_path: Path) -> None:
        with pytest.raises(MisuseError) as caught:
            fetch_wheel(tmp_path / "wheels", RELEASE)
        text = str(caught.value)
        assert text.startswith(f"target npu-dry: pip finds no torch-npu {RELEASE} (No matching distribution")
        assert text.endswith("or name a wheel in FUSIONKIT_TORCH_NPU_WHEEL")
        assert "\n" not in text
        assert list((tmp_path / "wheels").iterdir()) == []


class TestUnpacked:
    @pytest.fixture
    def unpacked(self, made: dict[str, Path], tmp_path: Path) -> Path:
        unpack(made[""], tmp_path / "unpacked")
        return tmp_path / "unpacked"

    def test_it_is_whole(self, made: dict[str, Path], unpacked: Path) -> None:
        assert is_whole(unpacked, made[""])

    @pytest.mark.parametrize(
        "name", ["torch_npu/_C.so", "torch_npu/lib/libtorch_npu.so", "torch_npu/__init__.py"]
    )
    def test_one_changed_byte_is_noticed(self, made: dict[str, Path], unpacked: Path, name: str) -> None:
        data = bytearray((unpacked / name).read_bytes())
        data[len(data) // 2] ^= 1
        (unpacked / name).write_bytes(data)
        assert not is_whole(unpacked, made[""])

    @pytest.mark.parametrize("name", ["torch_npu/_C.so", f"torch_npu-{RELEASE}.dist-info/RECORD"])
    def test_a_missing_file_is_noticed(self, made: dict[str, Path], unpacked: Path, name: str) -> None:
        (unpacked / name).unlink()
        assert not is_whole(unpacked, made[""])

    def test_another_wheel_of_the_same_name_is_noticed(self, unpacked: Path, tmp_path: Path) -> None:
        assert not is_whole(unpacked, make_wheel(tmp_path, text="another build"))

    def test_no_folder_is_not_whole(self, made: dict[str, Path], tmp_path: Path) -> None:
        assert not is_whole(tmp_path / "absent", made[""])

    def test_a_damaged_wheel_breaks_the_run_and_leaves_nothing(
        self, made: dict[str, Path], tmp_path: Path
    ) -> None:
        damaged = tmp_path / made[""].name
        damaged.write_bytes(made[""].read_bytes()[:2000])
        with pytest.raises(RunBrokenError, match="cannot be unpacked into"):
            unpack(damaged, tmp_path / "folder")
        assert not (tmp_path / "folder").exists()
        assert not is_whole(tmp_path, damaged)

    def test_a_wheel_without_a_record_is_not_whole(self, tmp_path: Path) -> None:
        wheel = tmp_path / f"torch_npu-{RELEASE}-{TAG}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("torch_npu/__init__.py", "")
        unpack(wheel, tmp_path / "folder")
        assert not is_whole(tmp_path / "folder", wheel)
