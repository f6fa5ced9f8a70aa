"""The status of a run: its notebooks with their verdicts, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusionkit.encoding import Result
from fusionkit.errors import MisuseError
from fusionkit.evidence.manifest import MANIFEST, Manifest, read_manifest
from fusionkit.evidence.phase_records import read_phases

SCHEMA = "fusionkit/status/1"
_BROKEN = "BROKEN"
_ABSENT = "did not run"


@dataclass(frozen=True, slots=True)
class StatusRow:
    """One notebook: PASS, FAIL or INCONCLUSIVE, BROKEN, or "did not run"."""

    notebook: str
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True)
class RunStatus(Result, schema=SCHEMA, keys={"rows": "notebooks"}):
    """`state` is a sentence; `return_code` is None while the run goes on, or after it was killed."""

    run_dir: Path
    state: str
    return_code: int | None
    rows: tuple[StatusRow, ...]


def run_status(run_dir: Path) -> RunStatus:
    """Read the status of a run folder, or of a folder with phase records of notebooks run by hand.

    Raises MisuseError for any other folder.
    """
    phases = {phase["notebook"]: phase for phase in read_phases(run_dir)}
    if not (run_dir / MANIFEST).is_file():
        if not phases:
            raise MisuseError(f"{run_dir}: not a run folder (no {MANIFEST}); give a folder that a run wrote")
        rows = [StatusRow(name, phase["verdict"], phase["reason"]) for name, phase in phases.items()]
        return RunStatus(run_dir, "written by notebooks outside a run", None, tuple(rows))
    manifest = read_manifest(run_dir)
    by_number = {f"{phase['phase']:02d}": phase for phase in phases.values()}
    names = sorted({*manifest.selected, *(run.name for run in manifest.notebooks)})
    rows = [_row(name, manifest, by_number) for name in names]
    return RunStatus(run_dir, _state(manifest), manifest.return_code, tuple(rows))


def _row(name: str, manifest: Manifest, phases: dict[str, dict[str, Any]]) -> StatusRow:
    run, phase = manifest.notebook(name), phases.get(name[:2])
    if run is not None and run.return_code not in (0, 1):
        return StatusRow(name, _BROKEN, run.error or "")
    if phase is None:
        return StatusRow(name, _ABSENT if run is None else "left no phase", "")
    return StatusRow(name, phase["verdict"], phase["reason"])


def _state(manifest: Manifest) -> str:
    if manifest.ended is None:
        return f"runs, or was killed; started {manifest.started}"
    return f"ended with {manifest.return_code} at {manifest.ended}"
