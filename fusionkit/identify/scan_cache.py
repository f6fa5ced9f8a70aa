"""What a scan found in a file before: good while the file, the files it was read with and the rules are the same."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Any

from fusionkit.errors import FusionKitError
from fusionkit.identify.candidates import Candidate, Existing
from fusionkit.identify.scan_worker import FileResult, Inherited
from fusionkit.npu.dry.cache_folder import SCANS, cache_root
from fusionkit.store import read_json, sha256_file, write_json

_PARTS = ("candidates", "inherited", "uses")


def kept(path: Path) -> FileResult | None:
    """The result of an earlier scan of the same file; None where there is none, or something changed since."""
    try:
        held = read_json(_place(path))
        same = held["rules"] == _rules() and all(
            sha256_file(Path(name)) == told for name, told in held["hashes"].items()
        )
        return _result(path, held) if same and str(path) in held["hashes"] else None
    except (FusionKitError, OSError, KeyError, TypeError, ValueError):
        return None


def keep(result: FileResult) -> None:
    """Keep a result for the next scan; one that failed is not kept, nor one that cannot be written."""
    if result.failed:
        return
    try:
        hashes = {name: sha256_file(Path(name)) for name in (str(result.path), *result.read_with)}
        parts = {name: [dataclasses.asdict(item) for item in getattr(result, name)] for name in _PARTS}
        write_json(_place(result.path), {"rules": _rules(), "hashes": hashes, **parts})
    except (FusionKitError, OSError, ValueError):  # a name that JSON cannot hold
        return


def _place(path: Path) -> Path:
    name = hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()
    return cache_root() / SCANS / f"{name}.json"


def _result(path: Path, held: dict[str, Any]) -> FileResult:
    return FileResult(
        path,
        tuple(_candidate(item) for item in held["candidates"]),
        tuple(Inherited(_candidate(item["candidate"]), item["base"]) for item in held["inherited"]),
        tuple(Existing(**item) for item in held["uses"]),
    )


def _candidate(item: dict[str, Any]) -> Candidate:
    return Candidate(
        **{
            **item,
            "existing": (),
            **{name: tuple(item[name]) for name in ("places", "hazards", "head_sizes")},
        }
    )


@cache
def _rules() -> str:
    """The hash of the modules that decide what a scan finds."""
    folder = Path(__file__).parent
    told = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        told.update(path.read_bytes())
    return told.hexdigest()
