"""The same model on a second target, captured in a process of its own: what graph, what hits, what differs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusionkit.capture.graphs import Capture, CapturedGraph
from fusionkit.capture.reading import read_capsule
from fusionkit.evidence.gates import Gate
from fusionkit.match.graph_comparison import GraphComparison
from fusionkit.match.hits import HitReport, report_hits
from fusionkit.match.matching import match_capture
from fusionkit.phases.study import Study
from fusionkit.processes import ending
from fusionkit.verdict import Verdict


@dataclass(frozen=True, slots=True)
class SecondTarget:
    """The capture of the investigated model on another target; `capture` None where `reason` says why not.

    `path` is the capsule, relative to the run folder.
    """

    target: str
    capture: Capture | None
    reason: str
    path: str

    def artifacts(self) -> list[dict[str, str]]:
        """The capsule, where there is one."""
        return [{"path": self.path, "kind": "capsule"}] if self.capture else []


def graph_rows(target: str, graphs: Sequence[CapturedGraph]) -> list[dict[str, Any]]:
    """One table row per graph of a target."""
    return [
        {
            "target": target,
            "graph": graph.key.index,
            "kind": graph.key.kind,
            "window": graph.window,
            "nodes": len(graph.nodes),
            "placeholders": len(graph.module.graph.find_nodes(op="placeholder")),
            "get_attr": len(graph.module.graph.find_nodes(op="get_attr")),
        }
        for graph in graphs
    ]


def capsule_path(target: str) -> str:
    """Where the second target's capsule is, relative to the run folder."""
    return f"artifacts/01_{target}.capsule.json"


def capture_on(study: Study, target: str | None) -> SecondTarget | None:
    """Capture the investigation's model on `target`, in a process of its own; None where none is asked for.

    A capsule that an earlier phase of the same run left is read again. Raises nothing for a target that is not
    available here: that is a result.
    """
    if not target or target == study.target:
        return None
    path = capsule_path(target)
    out = study.run_dir / path
    if not out.is_file():
        failed = _capture_in_process(study, target, out)
        if failed:
            return SecondTarget(target, None, failed, path)
    return SecondTarget(target, read_capsule(out), "", path)


def _capture_in_process(study: Study, target: str, out: Path) -> str | None:
    """Run `fusionkit capture`; the reason where it fails, in its own words."""
    model = study.model
    command = [
        sys.executable,
        "-m",
        "fusionkit.cli",
        "capture",
        model.name,
        "--target",
        target,
        "--out",
        str(out),
    ]
    command += ["--size", model.size, "--dtype", model.dtype, "--seed", str(model.seed)]
    command += ["--window", study.window, "--decompositions", study.decompositions]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.startswith("fusionkit: ")]
    return (
        lines[-1].removeprefix("fusionkit: ")
        if lines
        else f"the capture ended with {ending(done.returncode)}"
    )


def graph_gate(second: SecondTarget, comparison: GraphComparison | None) -> Gate:
    """Phase 1: is there a graph of the second target, in one piece, and what differs?"""
    if second.capture is None or comparison is None:
        return Gate(second.target, Verdict.INCONCLUSIVE, second.reason)
    nodes = sum(len(graph.nodes) for graph in second.capture.graphs)
    summary = f"{len(second.capture.graphs)} graph(s), {nodes} nodes; {comparison.sum_line()}"
    broken = (*second.capture.breaks, *second.capture.recompiles)
    if broken:
        return Gate(second.target, Verdict.INCONCLUSIVE, f"{summary}; {broken[0]}")
    return Gate(second.target, Verdict.PASS, summary)


def hits_on(study: Study, second: SecondTarget) -> HitReport | None:
    """Layer 1 of phase 6 on the second target's graphs: matched in its capsule, against the sites counted there."""
    if second.capture is None:
        return None
    matching = match_capture(second.capture, study.config())
    return report_hits(matching, second.capture.counts)
