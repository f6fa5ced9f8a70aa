"""Hits on a second target as evidence: its capsule, the report, and their verification."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fusionkit.capture.reading import read_capsule
from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.errors import MisuseError
from fusionkit.evidence.finding import Effect, Finding
from fusionkit.fusions import pattern_names
from fusionkit.match.hits import HitReport, report_hits
from fusionkit.match.matching import match_capture
from fusionkit.npu.target import current_target, use_target
from fusionkit.store import read_json, write_json
from fusionkit.verdict import Verdict, combine

SCHEMA = "fusionkit.second-hits/1"
KIND = "second-hits"


def second_gate(target: str) -> str:
    """Name of the gate on these hits."""
    return f"hits on {target}"


def write_second_hits(
    run_dir: Path, capsule: str, config: CompilationConfig, report: HitReport, from_file: list[str]
) -> list[dict[str, str]]:
    """Write `artifacts/06_hits_<target>.json`; `capsule` is the target's, relative to the run folder."""
    path = f"artifacts/06_hits_{report.target}.json"
    entry = {
        "schema": SCHEMA,
        "capsule": capsule,
        "window": config.window,
        "decompositions": config.decompositions,
        "from_file": from_file,
        "report": report.to_dict(),
    }
    write_json(run_dir / path, entry)
    return [{"path": path, "kind": KIND}, {"path": capsule, "kind": "capsule"}]


def recheck(path: Path, phase: Mapping[str, Any]) -> list[Finding]:
    """Match the kit's patterns anew in the capsule, and compare hits, verdicts and the gate with it.

    Fusions with a pattern file are not matched, since a recorded file must not be executed.
    """
    relative = f"artifacts/{path.name}"
    use_target(current_target() or "cpu")
    try:
        entry = read_json(path)
        recorded = entry["report"]["patterns"]
        findings = _gate(phase, entry["report"]["target"], recorded)
        capture = read_capsule(path.parents[1] / entry["capsule"])
        names = () if entry["from_file"] else tuple(name for name in recorded if name in pattern_names())
        config = CompilationConfig(fusion_patterns=select_patterns(names), window=entry["window"])
        anew = report_hits(match_capture(capture, config), capture.counts).to_dict()["patterns"]
        for name in names:
            wrong = [
                key for key in ("hits", "expected_sites", "verdict") if anew[name][key] != recorded[name][key]
            ]
            if wrong:
                findings.append(Finding(relative, f"{name}: {', '.join(wrong)} not borne out by the capsule"))
    except (MisuseError, KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        return [Finding(relative, f"cannot be read as hits ({error!s:.200})")]
    return findings


def _gate(phase: Mapping[str, Any], target: str, recorded: Mapping[str, Any]) -> list[Finding]:
    where = f"phases/{phase['phase']:02d}.json"
    said = [gate for gate in phase["gates"] if gate["name"] == second_gate(target)]
    if not said:
        return [Finding(where, f"no gate '{second_gate(target)}' in it", Effect.INCOMPLETE)]
    combined = combine(Verdict(entry["verdict"]) for entry in recorded.values())
    if said[0]["verdict"] != combined:
        return [
            Finding(where, f"gate '{second_gate(target)}' says {said[0]['verdict']}, its hits say {combined}")
        ]
    return []
