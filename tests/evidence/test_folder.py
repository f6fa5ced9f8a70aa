"""Who may write into a folder, and what is removed from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusionkit.errors import MisuseError, RunBrokenError
from fusionkit.evidence.folder import check_folder, drop_previous, previous_dir, run_folder
from fusionkit.evidence.manifest import Manifest, files_in, hash_outputs, write_manifest


def make_run(folder: Path, files: dict[str, str], *, return_code: int | None = 0) -> Manifest:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    manifest = Manifest(
        command=(),
        parameters={},
        environment={},
        package_sha256="",
        selected=(),
        inputs=(),
        started="s",
        ended=None if return_code is None else "e",
        return_code=return_code,
        outputs=hash_outputs(folder, {}),
    )
    write_manifest(folder, manifest)
    return manifest


def test_nothing_is_made_by_looking(tmp_path: Path) -> None:
    assert check_folder(tmp_path / "none") is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("with_run", [False, True])
def test_a_folder_with_anything_else_is_refused(tmp_path: Path, with_run: bool) -> None:
    if with_run:
        make_run(tmp_path, {"01_a.html": "page"})
    (tmp_path / "thesis.md").write_text("years of work")
    with pytest.raises(MisuseError, match=r"thesis\.md"):
        check_folder(tmp_path)


def test_a_file_in_place_of_the_folder_is_misuse(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(MisuseError, match="is a file"):
        check_folder(tmp_path / "out")


def test_what_a_killed_run_left_is_its_own_but_nothing_else_is(tmp_path: Path) -> None:
    make_run(tmp_path, {"01_a.ipynb": "x"}, return_code=None)
    for name in ("02_b.partial.ipynb", "artifacts/deep/x.csv", "phases/02.json", ".manifest.json.abc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("left over")
    manifest = check_folder(tmp_path)
    assert manifest is not None
    with run_folder(tmp_path, manifest, keep=False):
        assert list(tmp_path.iterdir()) == []
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(MisuseError, match=r"notes\.txt"):
        check_folder(tmp_path)


def test_a_finished_run_is_kept_beside_until_the_next_has_finished(tmp_path: Path) -> None:
    out = tmp_path / "out"
    manifest = make_run(out, {"01_a.html": "old", "artifacts/x": "1"})
    with run_folder(out, manifest, keep=False):
        assert list(files_in(out)) == []
        make_run(out, {"01_a.html": "new"})
    assert (previous_dir(out) / "01_a.html").read_text() == "old"
    drop_previous(out)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (out / "01_a.html").read_text() == "new"


def test_a_run_that_writes_nothing_leaves_the_one_before_in_place(tmp_path: Path) -> None:
    out = tmp_path / "out"
    manifest = make_run(out, {"01_a.html": "old"})
    with pytest.raises(RunBrokenError, match="disk full"), run_folder(out, manifest, keep=False):
        raise RunBrokenError("disk full")
    assert (out / "01_a.html").read_text() == "old"
    assert not previous_dir(out).exists()


def test_a_broken_run_is_replaced_and_the_kept_one_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    make_run(previous_dir(out), {"01_a.html": "good"})
    manifest = make_run(out, {"01_a.partial.ipynb": "broken"}, return_code=3)
    with run_folder(out, manifest, keep=False):
        assert list(files_in(out)) == []
        make_run(out, {"01_a.html": "again"}, return_code=3)
    assert (previous_dir(out) / "01_a.html").read_text() == "good"


def test_a_foreign_folder_named_previous_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    manifest = make_run(out, {"01_a.html": "old"})
    previous_dir(out).mkdir()
    (previous_dir(out) / "mine.txt").write_text("mine")
    with run_folder(out, manifest, keep=False):
        make_run(out, {"01_a.html": "new"})
    drop_previous(out)
    assert (previous_dir(out) / "mine.txt").read_text() == "mine"


def test_a_manifest_cannot_have_files_outside_removed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    manifest = make_run(out, {"01_a.html": "x"}, return_code=3)
    (tmp_path / "precious").write_text("p")
    hostile = Manifest(
        **{
            **{n: getattr(manifest, n) for n in Manifest.__dataclass_fields__},
            "outputs": {"../precious": "0"},
        }
    )
    with run_folder(out, hostile, keep=False):
        pass
    assert (tmp_path / "precious").exists()


def test_two_runs_cannot_hold_one_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with (
        run_folder(out, None, keep=False),
        pytest.raises(MisuseError, match="another run"),
        run_folder(out, None, keep=True),
    ):
        pass
    with run_folder(out, None, keep=False):
        pass


def test_a_folder_that_cannot_be_made_breaks_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RunBrokenError, match="cannot make"),
        run_folder(tmp_path / "file" / "out", None, keep=False),
    ):
        pass
