"""Verification of a phase's claims from its artifacts: one function per kind of artifact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fusionkit.evidence.finding import Effect, Finding

Recheck = Callable[[Path, Mapping[str, Any]], list[Finding]]
"""Called with the artifact and the phase that lists it; returns the claims that the artifact contradicts."""


def _numeric(path: Path, phase: Mapping[str, Any]) -> list[Finding]:
    from fusionkit.evidence.numeric_artifact import recheck  # imports torch

    return recheck(path, phase)


def _hits(path: Path, phase: Mapping[str, Any]) -> list[Finding]:
    from fusionkit.evidence.hits_artifact import recheck  # imports torch

    return recheck(path, phase)


def _second_hits(path: Path, phase: Mapping[str, Any]) -> list[Finding]:
    from fusionkit.evidence.second_hits import recheck  # imports torch

    return recheck(path, phase)


RECHECKS: dict[str, Recheck] = {
    "hits": _hits,
    "numeric": _numeric,
    "second-hits": _second_hits,
}

CLAIMS: dict[str, tuple[str, ...]] = {
    # entry of a phase: the kinds of artifact, at least one of which must be there
    "hits": ("hits", "kernels"),
    "numeric": ("numeric",),
}


def recheck_phase(run_dir: Path, phase: Mapping[str, Any]) -> list[Finding]:
    """Verify the phase's claims from its artifacts; a claim without an artifact is incomplete."""
    findings = []
    where = f"phases/{phase['phase']:02d}.json"
    kinds = {artifact["kind"] for artifact in phase["artifacts"]}
    for entry, wanted in CLAIMS.items():
        if phase[entry] and kinds.isdisjoint(wanted):
            what = f"`{entry}` is claimed, but no artifact of kind {' or '.join(wanted)} bears it out"
            findings.append(Finding(where, what, Effect.INCOMPLETE))
    for artifact in phase["artifacts"]:
        path = run_dir / artifact["path"]
        if artifact["kind"] not in RECHECKS:
            continue
        if not path.is_file():
            findings.append(Finding(artifact["path"], "the artifact is missing", Effect.INCOMPLETE))
            continue
        findings += RECHECKS[artifact["kind"]](path, phase)
    return findings
