"""Atomic writes, JSON, and hashes of files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from fusionkit.errors import MisuseError, RunBrokenError


def write_bytes(path: Path, data: bytes) -> Path:
    """Write `data` to a temporary name beside `path`, then rename it.

    Raises RunBrokenError when the disk is full or the folder cannot be written; `path` is then untouched.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise RunBrokenError(
            f"{path}: cannot write ({error.strerror or error}); free space or choose another folder"
        ) from error
    return path


def write_text(path: Path, text: str) -> Path:
    """Write `text` as UTF-8, atomically (see `write_bytes`)."""
    return write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> Path:
    """Write `value` as canonical JSON (see `to_json`), atomically."""
    return write_text(path, to_json(value) + "\n")


def to_json(value: Any, *, indent: int | None = 1) -> str:
    """Canonical JSON: sorted keys, no NaN, UTF-8 text kept."""
    return json.dumps(value, indent=indent, sort_keys=True, ensure_ascii=False, allow_nan=False)


def without_keys(value: Any, unit: str) -> Any:
    """JSON `value` without the keys `unit` and `*_unit`, at any depth: durations, which differ from run to run."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if key != unit and not key.endswith(f"_{unit}")}
        return {key: without_keys(item, unit) for key, item in kept.items()}
    return [without_keys(item, unit) for item in value] if isinstance(value, list) else value


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises MisuseError naming the file and the line when it cannot be read, or not written again."""
    try:
        value = json.loads(path.read_text("utf-8"))
        to_json(value, indent=None).encode("utf-8")  # json reads NaN, 1e999 and half a surrogate pair too
    except OSError as error:
        raise MisuseError(f"{path}: cannot read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        where = f" line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise MisuseError(f"{path}{where}: not JSON ({error}); write it again with fusionkit") from error
    return value


def sha256_bytes(data: bytes) -> str:
    """Hexadecimal SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Hexadecimal SHA-256 of a file. Raises MisuseError when it cannot be read."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise MisuseError(f"{path}: cannot read ({error.strerror or error})") from error
