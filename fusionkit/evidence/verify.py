"""Verification of a run folder: hashes, record and verdicts, claims against artifacts, inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import fusionkit
from fusionkit.encoding import Result
from fusionkit.environment import package_sha256
from fusionkit.errors import MisuseError
from fusionkit.evidence.finding import Effect, Finding, phase_file
from fusionkit.evidence.folder import written_by
from fusionkit.evidence.manifest import MANIFEST, Manifest, files_in, is_sealed, read_manifest
from fusionkit.evidence.phase_records import RECORD_JSONL, RECORD_MD, read_phases, record_jsonl, render_record
from fusionkit.store import sha256_file
from fusionkit.verdict import Verdict, combine

SCHEMA = "fusionkit/verification/1"

RECHECKS = {
    # kind of artifact: the function that gives the claims of a phase which the artifact contradicts; it imports torch
    "hits": "fusionkit.evidence.hits_artifact:recheck",
    "numeric": "fusionkit.evidence.numeric_artifact:recheck",
    "second-hits": "fusionkit.evidence.hits_artifact:recheck_second",
}

CLAIMS: dict[str, tuple[str, ...]] = {
    # entry of a phase: the kinds of artifact, at least one of which must be there
    "hits": ("hits", "kernels"),
    "numeric": ("numeric",),
}


@dataclass(frozen=True, slots=True)
class Verification(Result, schema=SCHEMA, also=("outcome",)):
    """`outcome`: verified, contradicted, incomplete or stale, by the most severe finding; true if verified."""

    run_dir: Path
    findings: tuple[Finding, ...]
    phases: tuple[Mapping[str, Any], ...]

    @property
    def outcome(self) -> str:
        """One word."""
        effects = {finding.effect for finding in self.findings}
        grave = (e for e in (Effect.CONTRADICTED, Effect.INCOMPLETE, Effect.STALE) if e in effects)
        return str(next(grave, "verified"))

    def __bool__(self) -> bool:
        return self.outcome == "verified"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; of each phase its number, notebook and verdict."""
        phases = [{name: p.get(name) for name in ("phase", "notebook", "verdict")} for p in self.phases]
        return Result.to_dict(self) | {"phases": phases}


def verify_evidence(run_dir: Path | str) -> Verification:
    """Check a run folder: hashes, record, verdicts, claims against artifacts, inputs. Nothing is written.

    Raises MisuseError for a folder that no run wrote.
    """
    folder = Path(run_dir)
    if not (folder / MANIFEST).is_file():
        if not (folder / "phases").is_dir():
            raise MisuseError(f"{folder}: not a run folder (no {MANIFEST}); give a folder that a run wrote")
        missing = Finding(MANIFEST, "missing: only `fusionkit run` writes one", Effect.INCOMPLETE)
        findings, phases = _check_record(folder)
        return Verification(folder, (missing, *findings), tuple(phases))
    try:
        sealed, manifest = is_sealed(folder), read_manifest(folder)
    except (MisuseError, RecursionError) as error:
        return Verification(folder, (Finding(MANIFEST, f"changed since it was written ({error})"),), ())
    findings = [] if sealed else [Finding(MANIFEST, "changed since it was written")]
    findings += _check_files(folder, manifest)
    lost = any(name.startswith("phases/") and not (folder / name).is_file() for name in manifest.outputs)
    record_findings, phases = _check_record(folder, phases_lost=lost)
    findings += [*record_findings, *_check_run(manifest, phases), *_check_inputs(folder, manifest)]
    return Verification(folder, tuple(findings), tuple(phases))


def _check_files(run_dir: Path, manifest: Manifest) -> list[Finding]:
    findings = []
    present = set(files_in(run_dir))
    for name, sha256 in manifest.outputs.items():
        if name not in present:
            findings.append(Finding(name, "missing", Effect.INCOMPLETE))
        elif not (run_dir / name).is_file() or sha256_file(run_dir / name) != sha256:
            findings.append(Finding(name, "changed since the run wrote it"))
    ours = set(written_by(run_dir, manifest))
    for name in sorted(present - set(manifest.outputs)):
        if name in ours:
            findings.append(Finding(name, "left by a run that did not come to its end", Effect.INCOMPLETE))
        else:
            findings.append(Finding(name, "not written by the run"))
    return findings


def _check_record(run_dir: Path, *, phases_lost: bool = False) -> tuple[list[Finding], list[dict[str, Any]]]:
    """Compare the record with the phases (unless some are lost), each verdict with its gates, each claim with its artifacts."""
    try:
        phases = read_phases(run_dir)
        rendered = {RECORD_JSONL: record_jsonl(phases), RECORD_MD: render_record(phases)}
        findings = [finding for phase in phases for finding in _check_phase(run_dir, phase)]
    except (MisuseError, KeyError, TypeError, ValueError, AttributeError) as error:
        return [Finding("phases", f"cannot be read as phases ({error!s:.200})")], []
    if not phases:
        return [Finding("phases", "no phase was recorded", Effect.INCOMPLETE)], []
    for name, text in rendered.items():
        if not (run_dir / name).is_file():
            findings.append(Finding(name, "missing", Effect.INCOMPLETE))
        elif not phases_lost and (run_dir / name).read_bytes() != text.encode("utf-8"):
            findings.append(Finding(name, "does not follow from the phases"))
    return findings, phases


def _check_phase(run_dir: Path, phase: Mapping[str, Any]) -> list[Finding]:
    combined = combine(Verdict(gate["verdict"]) for gate in phase["gates"])
    findings = recheck_phase(run_dir, phase)
    if phase["verdict"] != combined:
        what = f"the verdict is recorded as {phase['verdict']}, its gates combine to {combined}"
        findings.append(Finding(phase_file(phase), what))
    return findings


def recheck_phase(run_dir: Path, phase: Mapping[str, Any]) -> list[Finding]:
    """Verify the phase's claims from its artifacts; a claim without an artifact is incomplete."""
    findings = []
    kinds = {artifact["kind"] for artifact in phase["artifacts"]}
    for entry, wanted in CLAIMS.items():
        if phase[entry] and kinds.isdisjoint(wanted):
            what = f"`{entry}` is claimed, but no artifact of kind {' or '.join(wanted)} bears it out"
            findings.append(Finding(phase_file(phase), what, Effect.INCOMPLETE))
    for artifact in phase["artifacts"]:
        path = run_dir / artifact["path"]
        if artifact["kind"] not in RECHECKS:
            continue
        if path.is_file():
            findings += resolve_name(RECHECKS[artifact["kind"]])(path, phase)
        else:
            findings.append(Finding(artifact["path"], "the artifact is missing", Effect.INCOMPLETE))
    return findings


def _check_run(manifest: Manifest, phases: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Check that the run ended, each notebook wrote its phase, and each phase has its notebook."""
    if manifest.ended is None:
        return [Finding(MANIFEST, "the run was killed, or goes on", Effect.INCOMPLETE)]
    findings = []
    if manifest.return_code not in (0, 1):
        findings.append(Finding(MANIFEST, f"the run ended with {manifest.return_code}", Effect.INCOMPLETE))
    verdicts = {phase["phase"]: phase["verdict"] for phase in phases}
    stopped = False
    for name in manifest.selected:
        run = manifest.notebook(name)
        stopped = stopped or (run is not None and run.return_code != 0)
        if run is None and not stopped:
            findings.append(Finding(f"{name}.ipynb", "the notebook was not run", Effect.INCOMPLETE))
    for run in manifest.notebooks:
        where = f"phases/{run.number:02d}.json"
        if run.number not in verdicts:
            findings.append(Finding(where, f"{run.name} left no phase", Effect.INCOMPLETE))
        elif verdicts[run.number] != run.verdict:
            findings.append(Finding(where, f"{verdicts[run.number]}, but the run saw {run.verdict}"))
    odd = set(verdicts) - {run.number for run in manifest.notebooks}
    return findings + [
        Finding(f"phases/{n:02d}.json", "no notebook of the run wrote it") for n in sorted(odd)
    ]


def _check_inputs(run_dir: Path, manifest: Manifest) -> list[Finding]:
    """Check that the inputs are unchanged; a missing input is only noted."""
    findings = []
    for entry in manifest.inputs:
        path = run_dir / entry.path
        if not path.is_file():
            kept = f"; the run kept a copy as {entry.copy}" if entry.copy else ""
            findings.append(Finding(entry.path, f"the {entry.kind} is not here any more{kept}", Effect.NOTE))
        elif sha256_file(path) != entry.sha256:
            findings.append(Finding(entry.path, f"the {entry.kind} changed since the run", Effect.STALE))
    version = manifest.environment.get("fusionkit")
    if version != fusionkit.__version__:
        what = f"the run was made by fusionkit {version}, this is {fusionkit.__version__}"
        findings.append(Finding(MANIFEST, what, Effect.STALE))
    elif manifest.package_sha256 != package_sha256():
        findings.append(Finding(MANIFEST, "fusionkit's own code changed since the run", Effect.STALE))
    return findings
