"""The model on a second target, captured in a separate process: its graphs, its hits, the differences."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusionkit.capture.graphs import Capture, CapturedGraph
from fusionkit.capture.reading import read_capsule
from fusionkit.evidence.gates import Gate
from fusionkit.match.graph_comparison import GraphComparison
from fusionkit.match.hits import HitReport, report_hits
from fusionkit.match.matching import match_subject
from fusionkit.phases.study import Study
from fusionkit.processes import ending, module_command
from fusionkit.verdict import Verdict


@dataclass(frozen=True, slots=True)
class SecondTarget:
    """The capture of the model on another target; `capture` is None if it failed, for `reason`."""

    target: str
    capture: Capture | None
    reason: str

    def artifacts(self) -> list[dict[str, str]]:
        """The capsule as an artifact, if there is one."""
        return [{"path": capsule_path(self.target), "kind": "capsule"}] if self.capture else []


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
    """Path of the second target's capsule, relative to the run folder."""
    return f"artifacts/01_{target}.capsule.json"


def capture_on(study: Study, target: str | None) -> SecondTarget | None:
    """Capture the model on `target` in a separate process; None if `target` is empty or the study's own.

    A capsule that an earlier phase of this run wrote is reused. An unavailable target is a result, no error.
    """
    if not target or target == study.target:
        return None
    out = study.run_dir / capsule_path(target)
    if not out.is_file():
        failed = _capture_in_process(study, target, out)
        if failed:
            return SecondTarget(target, None, failed)
    return SecondTarget(target, read_capsule(out), "")


def _capture_in_process(study: Study, target: str, out: Path) -> str | None:
    """Run `fusionkit capture`; returns its error message if it fails."""
    model = study.model
    command = module_command("fusionkit", "capture", model.name, "--target", target, "--out", str(out))
    command += ["--size", model.size, "--dtype", model.dtype, "--seed", str(model.seed)]
    command += ["--window", study.window, "--decompositions", study.decompositions]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    prefix = "fusionkit: "
    lines = [line.removeprefix(prefix) for line in done.stderr.splitlines() if line.startswith(prefix)]
    return lines[-1] if lines else f"the capture ended with {ending(done.returncode)}"


def graph_gate(second: SecondTarget, comparison: GraphComparison | None) -> Gate:
    """Phase 1: PASS if the second target gives graphs without break or recompile; the reason sums up the differences."""
    if second.capture is None or comparison is None:
        return Gate(second.target, Verdict.INCONCLUSIVE, second.reason)
    nodes = sum(len(graph.nodes) for graph in second.capture.graphs)
    summary = f"{len(second.capture.graphs)} graph(s), {nodes} nodes; {comparison.sum_line()}"
    broken = (*second.capture.breaks, *second.capture.recompiles)
    if broken:
        return Gate(second.target, Verdict.INCONCLUSIVE, f"{summary}; {broken[0]}")
    return Gate(second.target, Verdict.PASS, summary)


def hits_on(study: Study, second: SecondTarget) -> HitReport | None:
    """Layer 1 of phase 6 on the second target: match in its capsule, compare with the sites counted there."""
    if second.capture is None:
        return None
    matching = match_subject(second.capture, study.config())
    return report_hits(matching, second.capture.counts)
