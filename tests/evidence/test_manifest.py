"""The manifest: sealed, read back, and which files of a folder it speaks of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fusionkit.errors import MisuseError
from fusionkit.evidence.manifest import (
    MANIFEST,
    InputFile,
    Manifest,
    NotebookRun,
    files_in,
    hash_outputs,
    is_sealed,
    read_manifest,
    write_manifest,
)
from fusionkit.evidence.status import run_status
from fusionkit.evidence.verify import verify_evidence
from fusionkit.store import sha256_bytes


def manifest(**changes: Any) -> Manifest:
    values: dict[str, Any] = {
        "command": ("fusionkit", "run"),
        "parameters": {"subject": "flux"},
        "environment": {"fusionkit": "0.1.0", "torch-npu": None},
        "package_sha256": "0" * 64,
        "selected": ("01_a",),
        "inputs": (InputFile("../p.yaml", "parameters", "1" * 64, "inputs/p.yaml"),),
        "started": "2026-01-01T00:00:00.000+00:00",
        "notebooks": (NotebookRun("01_a", 1, "k", 0, "PASS", "s", "e", ("01_a.html",)),),
        "outputs": {"01_a.html": "2" * 64},
    }
    return Manifest(**{**values, **changes})


def test_a_manifest_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    write_manifest(tmp_path, manifest())
    assert read_manifest(tmp_path) == manifest()
    assert is_sealed(tmp_path)


def test_every_changed_byte_breaks_the_seal(tmp_path: Path) -> None:
    path = write_manifest(tmp_path, manifest())
    data = path.read_bytes()
    for position in range(0, len(data), 7):
        changed = bytes([data[position] ^ 1])
        path.write_bytes(data[:position] + changed + data[position + 1 :])
        try:
            sealed = is_sealed(tmp_path)
        except MisuseError:  # not JSON any more
            sealed = False
        assert not sealed, position


def test_a_folder_without_manifest_or_with_another_is_told(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="not a run folder"):
        read_manifest(tmp_path)
    (tmp_path / MANIFEST).write_text('{"schema": "other"}')
    with pytest.raises(MisuseError, match="not a manifest of schema"):
        read_manifest(tmp_path)
    (tmp_path / MANIFEST).write_text('{"schema": "fusionkit/manifest/1"}')
    with pytest.raises(MisuseError, match="not a manifest of schema"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "value",
    ["NaN", "-Infinity", "1e999", r'"\ud800"', "1" * 5000, "[" * 100000, "[" * 970 + "]" * 970],
    ids=["NaN", "Infinity", "too large", "surrogate", "digits", "open", "deep"],
)
def test_what_cannot_be_written_again_is_refused_in_one_line(tmp_path: Path, value: str) -> None:
    path = write_manifest(tmp_path, manifest())
    path.write_text(path.read_text("utf-8").replace('"flux"', value), "utf-8")
    verification = verify_evidence(tmp_path)
    assert verification.outcome == "contradicted"
    assert verification.findings[0].what.startswith("changed since it was written")
    if len(value) != 2 * 970:  # which is still JSON, only not sealed
        for read in (is_sealed, read_manifest, run_status):
            with pytest.raises(
                MisuseError, match=r"manifest\.json: not JSON \(.*\); write it again"
            ) as refusal:
                read(tmp_path)
            assert str(refusal.value).isprintable()


@pytest.mark.parametrize("text", ["[]", "null", "3", '"x"'])
def test_a_manifest_that_is_no_object_is_not_sealed(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    assert not is_sealed(tmp_path)
    assert "not a manifest of schema" in verify_evidence(tmp_path).findings[0].what


def test_a_notebook_without_a_number_is_listed(tmp_path: Path) -> None:
    run = NotebookRun("y", 1, "k", 0, "PASS", "s", "e", ())
    write_manifest(tmp_path, manifest(selected=("x",), notebooks=(run,)))
    assert [(row.notebook, row.verdict) for row in run_status(tmp_path).rows] == [
        ("x", "did not run"),
        ("y", "left no phase"),
    ]


def test_files_of_a_folder_are_all_but_the_manifest_and_checkpoints(tmp_path: Path) -> None:
    for name in (
        "a.txt",
        "sub/b.txt",
        ".hidden",
        MANIFEST,
        "sub/.ipynb_checkpoints/c.ipynb",
        f"sub/{MANIFEST}",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to(tmp_path / "sub")
    assert sorted(files_in(tmp_path)) == [".hidden", "a.txt", "link", "sub/b.txt", f"sub/{MANIFEST}"]


def test_hashes_follow_the_files(tmp_path: Path) -> None:
    cache: dict[tuple[str, int, int], str] = {}
    (tmp_path / "a").write_text("one")
    assert hash_outputs(tmp_path, cache) == {"a": sha256_bytes(b"one")}
    (tmp_path / "a").write_text("other")
    assert hash_outputs(tmp_path, cache) == {"a": sha256_bytes(b"other")}
