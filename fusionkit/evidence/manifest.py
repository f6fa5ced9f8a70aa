"""manifest.json: inputs, outputs and times of a run; no other file of the evidence records times.

The file is sealed: canonical JSON with the SHA-256 of itself without that entry, so that a changed byte is detected.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fusionkit.encoding import Result, decode
from fusionkit.errors import MisuseError
from fusionkit.store import read_json, sha256_bytes, sha256_file, to_json, write_text

SCHEMA = "fusionkit/manifest/1"
MANIFEST = "manifest.json"
IGNORED_FOLDERS = frozenset({".ipynb_checkpoints"})  # written by JupyterLab

HashCache = MutableMapping[tuple[str, int, int], str]


@dataclass(frozen=True, slots=True)
class InputFile:
    """An input file of the run: `path` relative to the run folder, `copy` its copy there, if any."""

    path: str
    kind: str
    sha256: str
    copy: str | None = None


@dataclass(frozen=True, slots=True)
class NotebookRun:
    """One executed notebook: `key` is the hash of its dependencies, `outputs` its files, `error` the message if it broke."""

    name: str
    number: int
    key: str
    return_code: int
    verdict: str | None
    started: str
    ended: str
    outputs: tuple[str, ...]
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(Result, schema=SCHEMA):
    """The state of a run; `ended` and `return_code` are None while it runs, or after it was killed."""

    command: tuple[str, ...]
    parameters: Mapping[str, Any]
    environment: Mapping[str, str | None]
    package_sha256: str
    selected: tuple[str, ...]
    inputs: tuple[InputFile, ...]
    started: str
    ended: str | None = None
    return_code: int | None = None
    notebooks: tuple[NotebookRun, ...] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)

    def notebook(self, name: str) -> NotebookRun | None:
        """The run of the notebook of that name, or None."""
        return next((run for run in self.notebooks if run.name == name), None)


def now() -> str:
    """The current time in the manifest's format, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def write_manifest(run_dir: Path, manifest: Manifest) -> Path:
    """Write the sealed manifest, atomically."""
    return write_text(run_dir / MANIFEST, _sealed(manifest.to_dict()))


def read_manifest(run_dir: Path) -> Manifest:
    """Read the manifest of a run folder. Raises MisuseError when there is none, or none of this schema."""
    path = run_dir / MANIFEST
    if not path.is_file():
        raise MisuseError(
            f"{run_dir}: not a run folder (it has no {MANIFEST}); give a folder that a run wrote"
        )
    value = read_json(path)
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise MisuseError(f"{path}: not a manifest of schema {SCHEMA}; run again")
    fields = {name: value.get(name) for name in Manifest.__dataclass_fields__}
    return decode(Manifest, fields, f"{path}: not a manifest of schema {SCHEMA}; run again")


def is_sealed(run_dir: Path) -> bool:
    """Whether the manifest is byte for byte what `write_manifest` wrote."""
    value = read_json(run_dir / MANIFEST)
    if not isinstance(value, dict):
        return False
    value.pop("sha256", None)
    return (run_dir / MANIFEST).read_bytes() == _sealed(value).encode("utf-8")


def files_in(run_dir: Path) -> Iterator[str]:
    """Relative paths of all files of a run folder except the manifest; a link to a folder counts as a file."""
    for folder, names, files in os.walk(run_dir):
        names[:] = sorted(name for name in names if name not in IGNORED_FOLDERS)
        links = [name for name in names if (Path(folder) / name).is_symlink()]
        for name in sorted([*files, *links]):
            relative = (Path(folder) / name).relative_to(run_dir).as_posix()
            if relative != MANIFEST:
                yield relative


def hash_outputs(run_dir: Path, cache: HashCache) -> dict[str, str]:
    """SHA-256 of every file of the run folder; `cache` skips files with unchanged size and time."""
    hashes = {}
    for relative in files_in(run_dir):
        path = run_dir / relative
        status = path.lstat()
        key = (relative, status.st_size, status.st_mtime_ns)
        if key not in cache:
            cache[key] = sha256_file(path)
        hashes[relative] = cache[key]
    return hashes


def _sealed(value: dict[str, Any]) -> str:
    return to_json({**value, "sha256": sha256_bytes(to_json(value).encode("utf-8"))}) + "\n"
