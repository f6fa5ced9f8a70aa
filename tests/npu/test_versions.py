"""Which torch and torch_npu go together: what was tried, and what is installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import fusionkit.npu.versions as versions
from fusionkit.errors import MisuseError
from fusionkit.npu.versions import (
    TRIED,
    InstalledTorchNpu,
    fits,
    installed_torch_npu,
    refuse_unfit_pair,
    refuse_untried_torch,
)

ROOT = Path(__file__).resolve().parents[2]


def test_the_packages_range_is_what_was_tried() -> None:
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    (torch,) = (Requirement(line).specifier for line in lines if Requirement(line).name == "torch")
    assert [
        minor for minor in ("2.11", "2.12", *TRIED, "2.15", "3.0") if torch.contains(f"{minor}.0")
    ] == list(TRIED)


@pytest.mark.parametrize("version", ["2.13.0+cpu", "2.13.0+cu130", "2.14.0", "2.14.1"])
def test_a_torch_that_was_tried(version: str) -> None:
    refuse_untried_torch("npu-dry", version)


@pytest.mark.parametrize("version", ["2.12.1+cpu", "2.15.0", "3.0.0"])
def test_another_torch_is_one_line(version: str) -> None:
    with pytest.raises(MisuseError) as caught:
        refuse_untried_torch("npu-dry", version)
    text = f"target npu-dry: torch {version} was not tried with torch_npu; install torch and torch_npu of 2.13 or 2.14"
    assert str(caught.value) == text


def test_a_pair_of_two_releases_is_one_line() -> None:
    installed = InstalledTorchNpu(Path("/site"), "2.13.0.post1")
    refuse_unfit_pair("npu", "2.13.0+cpu", installed)
    refuse_unfit_pair("npu", "2.13.0+cpu", None)
    refuse_unfit_pair("npu", "2.13.0+cpu", InstalledTorchNpu(Path("/site"), ""))
    with pytest.raises(MisuseError) as caught:
        refuse_unfit_pair("npu", "2.14.0", installed)
    text = (
        "target npu: torch_npu 2.13.0.post1 is installed beside torch 2.14.0, and is not built for it;"
        " install a pair of one release"
    )
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("torch", "torch_npu", "together"),
    [
        ("2.13.0+cu130", "2.13.0", True),
        ("2.13.0", "2.13.0.post2", True),
        ("2.14.1", "2.14.0", False),
        ("2.13.0", "", False),
        ("2.13.0", "of mine", False),
    ],
)
def test_one_release(torch: str, torch_npu: str, together: bool) -> None:
    assert fits(torch, torch_npu) is together


def test_an_installed_torch_npu_is_found_by_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions.importlib.machinery.PathFinder, "find_spec", find_in(tmp_path))
    assert installed_torch_npu() is None
    (tmp_path / "torch_npu").mkdir()
    (tmp_path / "torch_npu" / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert installed_torch_npu() == InstalledTorchNpu(tmp_path.resolve(), "")
    (tmp_path / "torch_npu-9.8.7.dist-info").mkdir()
    (tmp_path / "torch_npu-9.8.7.dist-info" / "METADATA").write_text("Name: torch-npu\nVersion: 9.8.7\n")
    assert installed_torch_npu() == InstalledTorchNpu(tmp_path.resolve(), "9.8.7")


def find_in(folder: Path):  # type: ignore[no-untyped-def]
    """find_spec that looks into one folder, so that an installed torch_npu does not disturb the test."""
    find = versions.importlib.machinery.PathFinder.find_spec
    return lambda name: find(name, [str(folder)])
