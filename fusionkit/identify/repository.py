"""torch_npu in the repository around the scanned code, which may lie outside what was scanned."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

from fusionkit.errors import MisuseError
from fusionkit.identify.candidates import Existing, ScanReport
from fusionkit.identify.existing import uses_of_file, with_existing
from fusionkit.identify.gathering import gather
from fusionkit.identify.reading import UnreadableError, read_source

_MARK = b"torch_npu"
MOST_FILES = 20_000  # of a repository that are looked into


def with_repository(scan: ScanReport) -> ScanReport:
    """The scan with what its repository holds of torch_npu beside what was scanned; files are read, never run."""
    found = repository_of(Path(scan.root)) if scan.root else None
    if found is None:
        return scan
    scanned = {os.path.realpath(scan.path(use.file)) for use in scan.uses}
    uses = [
        use for path in _marked(found) if os.path.realpath(path) not in scanned for use in _uses(path, found)
    ]
    every = (*scan.uses, *uses)
    return dataclasses.replace(scan, uses=every, candidates=with_existing(scan.candidates, every))


def repository_of(folder: Path) -> Path | None:
    """The outermost package around a folder, or the checkout that it lies in; None where there is neither."""
    inside = folder.resolve()
    if (inside / "__init__.py").is_file():
        while (inside.parent / "__init__.py").is_file():
            inside = inside.parent
        return inside
    return next((place for place in (inside, *inside.parents) if (place / ".git").exists()), None)


def _marked(repository: Path) -> Iterator[Path]:
    """The Python files that name torch_npu."""
    try:
        paths = gather([repository])
    except MisuseError:  # not one Python file
        return
    for path in paths[:MOST_FILES]:
        try:
            if _MARK in path.read_bytes():
                yield path
        except OSError:
            continue


def _uses(path: Path, repository: Path) -> tuple[Existing, ...]:
    """The uses in one file, under its name from the repository's own folder on."""
    try:
        return uses_of_file(read_source(path), path.relative_to(repository.parent).as_posix())
    except UnreadableError:
        return ()
