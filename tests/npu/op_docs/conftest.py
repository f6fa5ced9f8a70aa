"""A cache of its own for every test of this folder, no torch_npu named, and the real wheel where there is one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from op_doc_wheels import TRACE

from fusionkit.npu.dry.cache_folder import cache_root
from fusionkit.npu.op_docs.index import ApiIndex, read_index
from fusionkit.npu.op_docs.package import find_package


@pytest.fixture(scope="session")
def real_index() -> ApiIndex:
    """The API of the torch_npu on this machine, in the user's own cache; skips where there is none."""
    path = find_package()
    if path is None:
        pytest.skip(f"no torch_npu is installed, named or cached in {cache_root()}")
    return read_index(path)


@pytest.fixture
def nothing_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without torch_npu: an empty cache (which is returned), nothing named, nothing installed."""
    monkeypatch.setenv("FUSIONKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FUSIONKIT_TORCH_NPU_WHEEL", raising=False)
    monkeypatch.setattr(
        sys, "path", [place for place in sys.path if not (Path(place) / "torch_npu").exists()]
    )
    return tmp_path / "cache"


@pytest.fixture
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder; a file of a wheel that were run would leave TRACE in it."""
    monkeypatch.chdir(tmp_path)
    assert not (tmp_path / TRACE).exists()
    return tmp_path
