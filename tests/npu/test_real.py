"""Target npu, driven by a fake torch_npu: the few lines that need a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dry_processes import run_script

import fusionkit.npu.real as real


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder, cache = tmp_path_factory.mktemp("fake"), tmp_path_factory.mktemp("cache")
    return run_script(Path(__file__).with_name("npu_session.py"), str(folder), str(cache))


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("missing", "No module named 'torch_npu'"),
        ("no CANN", "libhccl.so: cannot open shared object file"),
        ("no driver", "drv not found"),
        ("no device module", "module 'torch' has no attribute 'npu'"),
    ],
)
def test_a_torch_npu_that_does_not_start_is_one_line(seen: Any, case: str, said: str) -> None:
    text = (
        f"target npu: torch_npu does not start ({said}); install CANN and the torch-npu of this torch, or use"
        " target npu-dry"
    )
    assert seen[case] == ["MisuseError", text]


def test_a_torch_npu_of_another_release_is_one_line(seen: Any) -> None:
    kind, text = seen["another release"]
    assert kind == "MisuseError"
    assert text.startswith("target npu: torch_npu 1.2.3 is installed beside torch ")
    assert text.endswith(", and is not built for it; install a pair of one release")


def test_no_device_is_one_line(seen: Any) -> None:
    text = "target npu: torch_npu finds no device; see npu-smi info, or use target npu-dry"
    assert seen["no device"] == ["MisuseError", text]


def test_a_device_is_found(seen: Any) -> None:
    assert seen["found"] == "value"
    assert seen["target"] == ["npu", "npu", True, "fake"]
    assert seen["kit's ops"] is True
    text = "target cpu: this process runs target npu already; one target per process, start another one"
    assert seen["cpu after it"] == ["MisuseError", text]


def test_the_device_is_seeded_inside_the_block_only(seen: Any) -> None:
    assert [seen["inside"], seen["after"], seen["after an error"]] == [5, 7, 7]
    assert seen["calls"] == ["synchronize", ["seed", 5], ["restore", 7], ["seed", 6], ["restore", 7]]


def test_no_stand_in_is_seen_where_none_is_loaded(seen: Any) -> None:
    assert seen["stand-in"] is False


def test_the_stand_in_is_known_by_its_place_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "cache_root", lambda: Path(real.__file__).parent)
    monkeypatch.setattr(real, "STANDINS", "nothing-is-loaded-from-here")
    assert real.standin_is_loaded() is False
    import torch

    monkeypatch.setattr(real, "cache_root", lambda: Path(torch.__file__).resolve().parent)
    monkeypatch.setattr(real, "STANDINS", "lib")
    assert real.standin_is_loaded() is True
