"""Hits as evidence, on the target and on a second one: graphs, counted sites, and their verification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fusionkit.capture.capsule import write_capsule
from fusionkit.capture.graphs import Capture
from fusionkit.capture.reading import read_capsule
from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.errors import MisuseError
from fusionkit.evidence.finding import Effect, Finding, phase_file
from fusionkit.fusions import fused_packets, pattern_names, sharing
from fusionkit.match.hits import HitReport, report_hits
from fusionkit.match.matching import match_subject
from fusionkit.match.ops import packet
from fusionkit.npu.target import current_target, use_target
from fusionkit.passes.registering import PatternClass
from fusionkit.passes.registry import enabled_groups
from fusionkit.store import read_json, write_json
from fusionkit.verdict import Verdict, combine

SCHEMA = "fusionkit.hits-evidence/1"
SECOND_SCHEMA = "fusionkit.second-hits/1"
_UNREADABLE = (MisuseError, KeyError, TypeError, IndexError, AttributeError, ValueError)


def write_hits(
    run_dir: Path, name: str, before: Capture, after: Capture, files: Sequence[str], report: HitReport
) -> list[dict[str, str]]:
    """Write `artifacts/<name>.json` with its two capsules; returns the artifacts for the phase's record.

    `files`: the fusions whose patterns came from a file.
    """
    folder = f"artifacts/{name}"
    paths = f"{folder}.before.capsule.json", f"{folder}.after.capsule.json"
    for capture, path in zip((before, after), paths, strict=True):
        write_capsule(capture, run_dir / path)
    entry = {
        "schema": SCHEMA,
        "before": paths[0],
        "after": paths[1],
        "decompositions": before.decompositions,
        "from_file": list(files),
        "report": report.to_dict(),
    }
    write_json(run_dir / f"{folder}.json", entry)
    return [
        {"path": f"{folder}.json", "kind": "hits"},
        {"path": paths[0], "kind": "capsule"},
        {"path": paths[1], "kind": "capsule"},
    ]


def claim_hits(report: HitReport) -> dict[str, Any]:
    """The entry `hits` of a phase record: pattern -> hits, expected sites, verdict, reason."""
    return {
        name: {key: entry.to_dict()[key] for key in ("hits", "expected_sites", "verdict", "reason")}
        for name, entry in report.patterns.items()
    }


def recheck(path: Path, phase: Mapping[str, Any]) -> list[Finding]:
    """Verify recorded hits: match the kit's patterns anew in the capsule, and compare both graphs at every hit.

    A pattern file is not executed; its hits are verified by the removed nodes and the added fused ops alone.
    """
    run_dir, relative = path.parents[1], f"artifacts/{path.name}"
    use_target(current_target() or "cpu")
    try:
        entry = read_json(path)
        before, after = read_capsule(run_dir / entry["before"]), read_capsule(run_dir / entry["after"])
        recorded = entry["report"]["patterns"]
        findings = _claims(phase, recorded)
        for name, said in recorded.items():
            problems = [*_vanished(said, before, after), *_added(name, recorded, before, after)]
            findings += [Finding(relative, f"{name}: {what}") for what in problems]
        findings += [Finding(relative, what) for what in _rematch(entry, before)]
    except _UNREADABLE as error:
        return [Finding(relative, f"cannot be read as hits ({error!s:.200})")]
    return findings


def _claims(phase: Mapping[str, Any], recorded: Mapping[str, Any]) -> list[Finding]:
    where = phase_file(phase)
    findings = []
    for name, claim in phase["hits"].items():
        if name not in recorded:
            findings.append(Finding(where, f"hits of {name} are in no artifact", Effect.INCOMPLETE))
            continue
        wrong = [key for key in claim if claim[key] != recorded[name].get(key)]
        if wrong:
            findings.append(Finding(where, f"{name}: {', '.join(wrong)} differ from the artifact"))
    return findings


def _vanished(said: Mapping[str, Any], before: Capture, after: Capture) -> list[str]:
    """Contradictions between the recorded sites and the two graphs."""
    problems = []
    if said["hits"] != len(said["sites"]):
        problems.append(f"says {said['hits']} hits and lists {len(said['sites'])}")
    old = {(graph.key.index, node.name): node for graph in before.graphs for node in graph.nodes}
    new = {(graph.key.index, node.name): node for graph in after.graphs for node in graph.nodes}
    for site in said["sites"]:
        if any((site["graph"], node) not in old for node in site["nodes"]):
            problems.append(f"site {site['anchor']} lists nodes that the graph before does not have")
        kept = new.get((site["graph"], site["anchor"]))
        if kept is not None and kept.target == old[(site["graph"], site["anchor"])].target:
            problems.append(f"site {site['anchor']} still stands in the graph after")
    expected = said["expected_sites"]
    if said["verdict"] == "PASS" and (
        expected is None or len(said["sites"]) + len(said["skipped"]) + len(said["already_fused"]) != expected
    ):
        problems.append(f"passes with {said['hits']} hits of {expected} sites")
    return problems


def _added(name: str, recorded: Mapping[str, Any], before: Capture, after: Capture) -> list[str]:
    """The contradiction between the recorded hits of the fusions that share ops, summed up, and the added ops."""
    names = sharing(name)
    wanted = {op for one in names for op in fused_packets(one)}
    old, new = (
        sum(packet(node) in wanted for graph in capture.graphs for node in graph.nodes)
        for capture in (before, after)
    )
    hits = sum(recorded[one]["hits"] for one in names if one in recorded)
    if not wanted or new - old == hits:
        return []
    shared = f" of {' and '.join(names)}" if len(names) > 1 else ""
    return [f"{hits} hits{shared} recorded, {new - old} fused ops were added to the graph"]


def _rematch(entry: Mapping[str, Any], before: Capture) -> list[str]:
    """Differences between recorded hits and those of the kit's patterns, matched anew in the recorded order."""
    names = [name for name in entry["report"]["patterns"] if name not in entry["from_file"]]
    known = tuple(name for name in names if name in pattern_names())
    if entry["from_file"]:
        return []  # which nodes a file's pattern rewrote is unknown without executing the file
    config = CompilationConfig(fusion_patterns=select_patterns(known), window=entry["report"]["window"])
    matching = match_subject(replace(before, decompositions=entry["decompositions"]), config)
    recorded = entry["report"]["patterns"]
    counts = {name: sum(match.status == "hit" for match in matching.of(name)) for name in known}
    return [
        f"{name}: {recorded[name]['hits']} hits recorded, {count} found anew"
        for name, count in counts.items()
        if count != recorded[name]["hits"]
    ]


def second_gate(target: str) -> str:
    """Name of the gate on the hits on a second target."""
    return f"hits on {target}"


def write_second_hits(
    run_dir: Path, capsule: str, config: CompilationConfig, report: HitReport, files: list[str]
) -> list[dict[str, str]]:
    """Write `artifacts/06_hits_<target>.json`; `capsule` is the target's, relative to the run folder."""
    path = f"artifacts/06_hits_{report.target}.json"
    entry = {
        "schema": SECOND_SCHEMA,
        "capsule": capsule,
        "window": config.window,
        "decompositions": config.decompositions,
        "from_file": files,
        "report": report.to_dict(),
    }
    write_json(run_dir / path, entry)
    return [{"path": path, "kind": "second-hits"}, {"path": capsule, "kind": "capsule"}]


def recheck_second(path: Path, phase: Mapping[str, Any]) -> list[Finding]:
    """Match the kit's patterns anew in the capsule, and compare hits, verdicts and the gate with it.

    Fusions with a pattern file are not matched, since a recorded file must not be executed.
    """
    relative = f"artifacts/{path.name}"
    use_target(current_target() or "cpu")
    try:
        entry = read_json(path)
        recorded = entry["report"]["patterns"]
        findings = _check_second_gate(phase, entry["report"]["target"], recorded)
        capture = read_capsule(path.parents[1] / entry["capsule"])
        names = () if entry["from_file"] else tuple(name for name in recorded if name in pattern_names())
        config = CompilationConfig(fusion_patterns=select_patterns(names), window=entry["window"])
        anew = report_hits(match_subject(capture, config), capture.counts).to_dict()["patterns"]
        for name in names:
            wrong = [
                key for key in ("hits", "expected_sites", "verdict") if anew[name][key] != recorded[name][key]
            ]
            if wrong:
                findings.append(Finding(relative, f"{name}: {', '.join(wrong)} not borne out by the capsule"))
    except _UNREADABLE as error:
        return [Finding(relative, f"cannot be read as hits ({error!s:.200})")]
    return findings


def _check_second_gate(phase: Mapping[str, Any], target: str, recorded: Mapping[str, Any]) -> list[Finding]:
    name = second_gate(target)
    verdict = next((gate["verdict"] for gate in phase["gates"] if gate["name"] == name), None)
    combined = combine(Verdict(entry["verdict"]) for entry in recorded.values())
    if verdict is None:
        return [Finding(phase_file(phase), f"no gate '{name}' in it", Effect.INCOMPLETE)]
    if verdict != combined:
        return [Finding(phase_file(phase), f"gate '{name}' says {verdict}, its hits say {combined}")]
    return []


def from_file(config: CompilationConfig, groups: Mapping[str, Sequence[PatternClass]]) -> list[str]:
    """The fusions of `groups` whose patterns are not the kit's own."""
    own = enabled_groups(config.fusion_patterns)
    return [name for name, group in groups.items() if own.get(name) is not group]
