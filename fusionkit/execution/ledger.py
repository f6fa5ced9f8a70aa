"""The manifest of a running run, updated after every notebook."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fusionkit.environment import environment
from fusionkit.errors import MisuseError, RunBrokenError
from fusionkit.evidence.folder import remove_files, written_by
from fusionkit.evidence.html import index_html
from fusionkit.evidence.manifest import (
    MANIFEST,
    HashCache,
    InputFile,
    Manifest,
    NotebookRun,
    files_in,
    hash_outputs,
    now,
    write_manifest,
)
from fusionkit.evidence.phase_records import RECORD_JSONL, RECORD_MD, phase_path, read_phases, write_record
from fusionkit.execution.plan import Plan, Step
from fusionkit.store import read_json, sha256_file, write_bytes, write_text
from fusionkit.verdict import Verdict

SHARED = frozenset({RECORD_JSONL, RECORD_MD, "index.html"})
"""Files that every notebook changes; they are outputs of none."""


@dataclass(slots=True)
class Ledger:
    """The manifest, its folder, and a cache of hashes. Created by `open_ledger`."""

    run_dir: Path
    manifest: Manifest
    hashes: HashCache = field(default_factory=dict)

    def enter(self, run: NotebookRun) -> None:
        """Add an ended notebook to the manifest; files that it changed become its outputs."""
        mine = set(run.outputs)
        others = tuple(
            replace(other, outputs=tuple(name for name in other.outputs if name not in mine))
            for other in self.manifest.notebooks
            if other.name != run.name
        )
        notebooks = tuple(sorted((*others, run), key=lambda entry: entry.number))
        self.manifest = replace(self.manifest, notebooks=notebooks)
        self.write()

    def write(self, *, return_code: int | None = None) -> None:
        """Render the index, hash the files, write the manifest; a return code marks the run as ended."""
        self._write_index()
        if return_code is not None:
            self.manifest = replace(self.manifest, return_code=return_code, ended=now())
        self.manifest = replace(self.manifest, outputs=hash_outputs(self.run_dir, self.hashes))
        write_manifest(self.run_dir, self.manifest)

    def end_broken(self, return_code: int) -> None:
        """End the run after an error; if the disk is full, the manifest stays unchanged."""
        with contextlib.suppress(RunBrokenError, MisuseError):
            self.write(return_code=return_code)

    def outputs_since(self, before: dict[str, str]) -> tuple[str, ...]:
        """The files that are new or changed since `before` was hashed."""
        after = hash_outputs(self.run_dir, self.hashes)
        return tuple(name for name in after if name not in SHARED and before.get(name) != after[name])

    def _write_index(self) -> None:
        phases = {phase["phase"]: phase for phase in read_phases(self.run_dir)}
        names = dict.fromkeys([*(run.name for run in self.manifest.notebooks), *self.manifest.selected])
        rows = []
        for name in sorted(names):
            run = self.manifest.notebook(name)
            phase = phases.get(int(name[:2]))
            partial = run is not None and run.return_code not in (0, 1)
            page = f"{name}.partial.html" if partial else f"{name}.html"
            rows.append(
                {
                    "name": name,
                    "verdict": "BROKEN" if partial else phase["verdict"] if phase else None,
                    "reason": phase["reason"] if phase else run.error if run else None,
                    "page": page if (self.run_dir / page).is_file() else None,
                }
            )
        links = [name for name in (RECORD_MD, RECORD_JSONL) if (self.run_dir / name).is_file()]
        write_text(
            self.run_dir / "index.html", index_html(self.run_dir.name, rows, [*links, "manifest.json"])
        )


def open_ledger(plan: Plan, command: Sequence[str], previous: Manifest | None) -> tuple[Ledger, set[str]]:
    """Start the manifest of a run; with `previous`, keep its notebooks that are still valid.

    Returns the ledger and the names of the kept notebooks, which alone stay in the record. If opening a new run
    fails, its files are removed.
    """
    try:
        return _open(plan, command, previous)
    except RunBrokenError:
        if previous is None:
            with contextlib.suppress(RunBrokenError):
                remove_files(plan.run_dir, [*files_in(plan.run_dir), MANIFEST])
        raise


def _open(plan: Plan, command: Sequence[str], previous: Manifest | None) -> tuple[Ledger, set[str]]:
    kept = [] if previous is None else kept_notebooks(plan, previous)
    if previous is not None:
        mine = {name for run in kept for name in run.outputs}
        remove_files(plan.run_dir, [name for name in written_by(plan.run_dir, previous) if name not in mine])
    manifest = Manifest(
        command=tuple(command),
        parameters=dict(plan.parameters.values),
        environment=environment(),
        package_sha256=plan.package_sha256,
        selected=tuple(step.name for step in plan.steps),
        inputs=(),
        started=now(),
        notebooks=tuple(kept),
    )
    write_manifest(plan.run_dir, manifest)
    ledger = Ledger(plan.run_dir, replace(manifest, inputs=_keep_inputs(plan, kept)))
    if kept:
        write_record(plan.run_dir)
    ledger.write()
    return ledger, {run.name for run in kept}


def kept_notebooks(plan: Plan, previous: Manifest) -> list[NotebookRun]:
    """The leading notebooks of the previous run with unchanged inputs and outputs.

    Phases build on one another, so that all notebooks after a rerun one are rerun too.
    """
    steps = {step.name: step for step in plan.steps}
    names = sorted({run.name for run in previous.notebooks} | set(steps))
    kept = []
    for name in names:
        run, step = previous.notebook(name), steps.get(name) or plan.other_step(name)
        if run is None or step is None or not _holds(plan.run_dir, previous, run, step):
            break
        kept.append(run)
    return kept


def _holds(run_dir: Path, previous: Manifest, run: NotebookRun, step: Step) -> bool:
    phase = phase_path(run_dir, step.number)
    intact = all(
        (run_dir / name).is_file() and sha256_file(run_dir / name) == previous.outputs.get(name)
        for name in run.outputs
    )
    return (
        run.return_code == 0
        and run.key == step.key
        and intact
        and phase.is_file()
        and read_json(phase).get("verdict") != Verdict.FAIL
    )


def _keep_inputs(plan: Plan, kept: Sequence[NotebookRun]) -> tuple[InputFile, ...]:
    """Describe the inputs; copy the user's own files, so that the evidence is self-contained."""
    entries = []
    for path, kind, sha256 in [*plan.inputs, *plan.other_inputs([run.name for run in kept])]:
        copy = None
        if kind == "parameters" or (kind != "notebook" and path.suffix == ".py"):
            copy = f"inputs/{path.name}"
            _copy(path, plan.run_dir / copy)
        entries.append(InputFile(os.path.relpath(path, plan.run_dir), kind, sha256, copy))
    return tuple(entries)


def _copy(path: Path, target: Path) -> None:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunBrokenError(f"{path}: cannot read any more ({error.strerror})") from error
    write_bytes(target, data)
