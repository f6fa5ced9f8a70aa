"""Run folders: one run at a time, and a run replaces only files that a run wrote."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fusionkit.errors import MisuseError, RunBrokenError
from fusionkit.evidence.manifest import MANIFEST, Manifest, files_in, read_manifest

_RUN_FILE = re.compile(
    r"(phases|artifacts|inputs)/.+|\d\d_\w+(\.partial)?\.(ipynb|html)|record\.(md|jsonl)|index\.html|\.[^/]+"
)


def check_folder(run_dir: Path) -> Manifest | None:
    """The manifest of the run in the folder, None without one; writes nothing.

    Raises MisuseError if the folder contains a file that no run wrote.
    """
    if not run_dir.exists():
        return None
    if not run_dir.is_dir():
        raise MisuseError(f"{run_dir}: is a file; give a folder with --out")
    manifest = read_manifest(run_dir) if (run_dir / MANIFEST).is_file() else None
    ours = set() if manifest is None else set(written_by(run_dir, manifest))
    stranger = next((name for name in files_in(run_dir) if name not in ours), None)
    if stranger is not None:
        raise MisuseError(f"{run_dir}: holds {stranger}, which no run wrote; move it, or give another --out")
    return manifest


@contextmanager
def run_folder(run_dir: Path, previous: Manifest | None, *, keep: bool) -> Iterator[None]:
    """Create and lock the folder for this run; remove the previous run from it unless `keep`.

    If this run ends before it writes its manifest, the previous run is restored. Raises MisuseError while another
    run has the lock, RunBrokenError if the folder cannot be created.
    """
    with contextlib.ExitStack() as locks:
        locks.enter_context(_locked(run_dir))
        if previous is not None and not keep and _set_aside(run_dir, previous):
            locks.enter_context(_locked(run_dir))
        try:
            yield
        finally:
            if previous is not None and not any(files_in(run_dir)) and not (run_dir / MANIFEST).exists():
                _put_back(run_dir)


def previous_dir(run_dir: Path) -> Path:
    """The folder that keeps the previous run until the current one has ended."""
    return run_dir.with_name(f"{run_dir.name}.previous")


def drop_previous(run_dir: Path) -> None:
    """Remove the previous run that was kept beside the folder, if any."""
    aside = previous_dir(run_dir)
    if (aside / MANIFEST).is_file():
        with contextlib.suppress(MisuseError):
            _remove_run(aside, read_manifest(aside))
        with contextlib.suppress(OSError):
            aside.rmdir()


def remove_files(run_dir: Path, names: Iterable[str]) -> None:
    """Remove files of the run folder, and subfolders that become empty."""
    try:
        for name in names:
            (run_dir / name).unlink(missing_ok=True)
            for parent in Path(name).parents:
                if parent != Path() and (run_dir / parent).is_dir() and not any((run_dir / parent).iterdir()):
                    (run_dir / parent).rmdir()
    except OSError as error:
        raise RunBrokenError(f"{run_dir}: cannot remove the run before ({error.strerror})") from error


def written_by(run_dir: Path, manifest: Manifest) -> list[str]:
    """The files that the manifest lists; after a killed run, also those with the names of a run's files."""
    return [
        name
        for name in files_in(run_dir)
        if name in manifest.outputs or (manifest.ended is None and _RUN_FILE.fullmatch(name))
    ]


@contextmanager
def _locked(run_dir: Path) -> Iterator[None]:
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        handle = os.open(run_dir, os.O_RDONLY)
    except OSError as error:
        raise RunBrokenError(f"{run_dir}: cannot make the run folder ({error.strerror})") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):  # other errors: a file system without locks
            os.close(handle)
            raise MisuseError(
                f"{run_dir}: another run is writing there; wait, or give another --out"
            ) from error
    try:
        yield
    finally:
        os.close(handle)


def _set_aside(run_dir: Path, manifest: Manifest) -> bool:
    """Move the previous run to `.previous` if it had ended, else delete its files.

    True if the folder itself was renamed and no longer exists.
    """
    aside = previous_dir(run_dir)
    if manifest.return_code in (0, 1) and not aside.exists():
        with contextlib.suppress(OSError):  # a mount point, or a parent that cannot be written
            run_dir.rename(aside)
            return True
    _remove_run(run_dir, manifest)
    return False


def _put_back(run_dir: Path) -> None:
    aside = previous_dir(run_dir)
    if aside.is_dir():
        with contextlib.suppress(OSError):
            for folder, _, _ in os.walk(run_dir, topdown=False):
                os.rmdir(folder)
            aside.rename(run_dir)


def _remove_run(run_dir: Path, manifest: Manifest) -> None:
    remove_files(run_dir, [*written_by(run_dir, manifest), MANIFEST])
