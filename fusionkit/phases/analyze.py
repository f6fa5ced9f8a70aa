"""Phase 1: locate the primitives and their parameters in the graph, and choose the candidate fusions."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from fusionkit.capture.capsule import graph_text, write_capsule
from fusionkit.capture.counted import with_counts
from fusionkit.capture.graphs import CapturedGraph, copy_graph_module
from fusionkit.capture.sources import source_place
from fusionkit.config import WINDOWS, select_patterns
from fusionkit.encoding import Result
from fusionkit.evidence.gates import Gate
from fusionkit.evidence.phase_records import PhaseRecord
from fusionkit.fusions import fusion, pattern_names
from fusionkit.match.comparing import compare_captures
from fusionkit.match.graph_comparison import GraphComparison
from fusionkit.passes.compiled import Compiled, pattern_groups
from fusionkit.passes.match_pass import match_pass_for
from fusionkit.passes.site_match import SiteMatch
from fusionkit.phases.second_target import SecondTarget, capture_on, graph_gate, graph_rows
from fusionkit.phases.study import Study
from fusionkit.store import write_text
from fusionkit.subjects.fragments import SourceFragment, fragment_around, source_fragments
from fusionkit.verdict import Verdict

_NONE = "\N{EN DASH}"


@dataclass(frozen=True, slots=True)
class Candidate(Result, keys={"forecast": "expected benefit", "path": "path forecast"}):
    """One row of the candidate table; `decision` is "go", "deferred" or "rejected"."""

    pattern: str
    sites: int | None
    decision: str
    reuse: str
    forecast: str
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Analysis:
    """Result of phase 1."""

    study: Study
    compiled: Compiled
    fragments: tuple[SourceFragment, ...]
    parameters: tuple[dict[str, Any], ...]
    candidates: tuple[Candidate, ...]
    gates: tuple[Gate, ...]
    second: SecondTarget | None = None
    comparison: GraphComparison | None = None

    def graph_rows(self) -> list[dict[str, Any]]:
        """One row per captured graph and window, those of the second target last."""
        own = graph_rows(self.study.target, self.compiled.session.windows)
        if self.second is None or self.second.capture is None:
            return own
        return own + graph_rows(self.second.target, self.second.capture.graphs)

    def op_rows(self) -> list[dict[str, Any]]:
        """One row per op whose call count differs between the two targets' graphs."""
        return self._by_target([] if self.comparison is None else self.comparison.op_rows())

    def site_rows(self) -> list[dict[str, Any]]:
        """One row per site whose state differs between the two targets."""
        return self._by_target([] if self.comparison is None else self.comparison.site_rows())

    def _by_target(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The comparison's rows, with the keys "a" and "b" replaced by the targets' names."""
        names = {"a": self.study.target, "b": self.second.target if self.second else ""}
        return [{names.get(key, key): value for key, value in row.items()} for row in rows]

    def why_no_difference(self) -> str:
        """The reason why the tables of differences are empty."""
        if self.second is None:
            return "no second target in this run"
        return self.second.reason or (self.comparison.sum_line() if self.comparison else "")

    def write(self) -> PhaseRecord:
        """Write the graphs of both windows as text, the capsule, and the evidence."""
        artifacts = []
        for graph in self.compiled.session.windows:
            name = f"artifacts/01_graph{graph.key.index}_{graph.window}.txt"
            write_text(self.study.run_dir / name, graph_text(graph))
            artifacts.append({"path": name, "kind": "graph"})
        capture = self.compiled.capture(self.compiled.session.windows)
        write_capsule(capture, self.study.run_dir / "artifacts/01_windows.capsule.json")
        artifacts.append({"path": "artifacts/01_windows.capsule.json", "kind": "capsule"})
        artifacts += self.second.artifacts() if self.second else []
        return self.study.write(1, "01_analyze_model", self.gates, artifacts=artifacts)


def analyze(study: Study, api_stage: str = "", second_target: str | None = None) -> Analysis:
    """Capture both windows, extract the primitives' source, locate their parameters, judge the candidates.

    `api_stage`: outcome of the API stage, which precedes compile work; required on target npu. `second_target`: a
    target on which the model is captured as well, in a separate process, for comparison.
    """
    with ThreadPoolExecutor(1) as beside:
        elsewhere = beside.submit(capture_on, study, second_target)
        compiled = study.compile_plain(freezing=True)
        second = elsewhere.result()
    comparison = _compare(study, compiled, second)
    counted = [name for name, count in study.counts.items() if count.expected]
    matches: dict[str, tuple[SiteMatch, ...]] = {}
    for graph in compiled.session.windows:
        matches[graph.window] = (*matches.get(graph.window, ()), *_try_all(study, graph))
    graphs = [graph for graph in compiled.session.windows if graph.window == study.window]
    fragments = tuple(
        item for name in counted for item in _fragments(study, name, matches.get(study.window, ()), graphs)
    )
    candidates = tuple(
        _candidate(study, name, matches.get(study.window, ()), graphs) for name in pattern_names()
    )
    return Analysis(
        study=study,
        compiled=compiled,
        fragments=fragments,
        parameters=tuple(_parameter_rows(compiled, matches)),
        candidates=candidates,
        gates=(
            _captured(compiled),
            _counted(candidates),
            _complete(candidates, fragments, counted),
            _api_stage(study, api_stage),
            *([graph_gate(second, comparison)] if second else []),
        ),
        second=second,
        comparison=comparison,
    )


def _compare(study: Study, compiled: Compiled, second: SecondTarget | None) -> GraphComparison | None:
    """Compare the graphs of the study's window on both targets."""
    if second is None or second.capture is None:
        return None
    own = with_counts(compiled.capture(), study.model.model, study.counts)
    return compare_captures(own, second.capture, patterns=study.patterns or None, window=study.window)


def _try_all(study: Study, graph: CapturedGraph) -> tuple[SiteMatch, ...]:
    """Match every pattern of the kit in a copy of the graph."""
    matcher = match_pass_for(
        pattern_groups(study.config(select_patterns(pattern_names()))), study.decompositions
    )
    return matcher.apply(copy_graph_module(graph.module), graph.key.index)


def _fragments(
    study: Study, name: str, matches: Sequence[SiteMatch], graphs: Sequence[CapturedGraph]
) -> list[SourceFragment]:
    """The pieces of source of a primitive: those that the counters name, then those of hits where none was counted."""
    fragments = source_fragments(study.model, name)
    counted = {module for item in fragments for module in item.modules}
    nodes = {(graph.key.index, node.name): node for graph in graphs for node in graph.nodes}
    places: dict[tuple[str, int], list[str]] = {}
    for match in matches:
        place = source_place(nodes[match.graph_index, match.anchor])
        if match.pattern == name and place is not None and not counted.intersection(match.modules):
            places.setdefault(place, []).append(match.module)
    around = [
        fragment_around(study.model, name, *place, tuple(dict.fromkeys(modules)))
        for place, modules in places.items()
    ]
    return [*fragments, *(item for item in around if item is not None)]


def _parameter_rows(compiled: Compiled, matches: dict[str, tuple[SiteMatch, ...]]) -> list[dict[str, Any]]:
    """Node kind of every pattern argument in every window: placeholder, get_attr, or computed in the graph."""
    kinds: dict[tuple[str, str], dict[str, str]] = {}
    for graph in compiled.session.windows:
        nodes = {node.name: node for node in graph.nodes}
        for match in (m for m in matches[graph.window] if m.graph_index == graph.key.index):
            for argument, value in match.arguments.items():
                kind = _kind(nodes[value["node"]]) if isinstance(value, dict) else f"literal {value:g}"
                seen = kinds.setdefault((match.pattern, argument), {})
                seen[graph.window] = kind if seen.get(graph.window, kind) == kind else "varies"
    return [
        {"pattern": pattern, "argument": argument}
        | {window: places.get(window, "no match here") for window in WINDOWS}
        for (pattern, argument), places in kinds.items()
    ]


def _kind(node: torch.fx.Node) -> str:
    return "computed" if node.op == "call_function" else node.op


def _candidate(
    study: Study, name: str, matches: Sequence[SiteMatch], graphs: Sequence[CapturedGraph]
) -> Candidate:
    count = study.counts.get(name)
    sites = None if count is None else count.expected
    row = fusion(name)
    matched = [match for match in matches if match.pattern == name]
    forecast = f"{row.benefit}: {row.reason}"
    if not sites:
        lacking = "independent counter for" if sites is None else "such primitive in"
        reason = f"no {lacking} this model" + (f"; {len(matched)} matches, not counted" if matched else "")
        return Candidate(name, sites, "rejected", _NONE, _NONE, _NONE, reason)
    if name not in study.patterns:
        reason = "not among the patterns of this run"
        return Candidate(name, sites, "deferred", _NONE, forecast, _NONE, reason)
    if len(matched) == sites:
        reuse = "the pattern under trial" if name == study.trial else "existing pattern"
        reason = f"matches {len(matched)} of {sites} sites"
    else:
        reuse, reason = "existing pattern misses", f"matches {len(matched)} of {sites} sites; see phase 5"
    return Candidate(name, sites, "go", reuse, forecast, path_for(matched, graphs), reason)


def path_for(matches: Sequence[SiteMatch], graphs: Sequence[CapturedGraph]) -> str:
    """The path of a fusion: GraphPatternEntry if a matched node has a symbolic size as operand, else register_replacement."""
    inside = {(match.graph_index, name) for match in matches for name in match.nodes}
    nodes = [node for graph in graphs for node in graph.nodes if (graph.key.index, node.name) in inside]
    sizes = [operand for node in nodes for operand in node.all_input_nodes]
    dynamic = any(isinstance(operand.meta.get("val"), torch.SymInt) for operand in sizes)
    return "GraphPatternEntry" if dynamic else "register_replacement"


def _captured(compiled: Compiled) -> Gate:
    breaks, again = compiled.outcome.breaks, compiled.outcome.recompiles
    graphs = len(compiled.before)
    if breaks or again:
        reason = f"{graphs} graphs; breaks: {breaks}; recompiles: {again}"
        return Gate("captured", Verdict.INCONCLUSIVE, reason)
    return Gate("captured", Verdict.PASS, f"{graphs} graph(s), no break, no recompile")


def _counted(candidates: Sequence[Candidate]) -> Gate:
    counts = ", ".join(f"{item.pattern} {item.sites}" for item in candidates if item.sites)
    if counts:
        return Gate("sites counted", Verdict.PASS, counts)
    reason = "no primitive of the kit's counters occurs in this model"
    return Gate("sites counted", Verdict.INCONCLUSIVE, reason)


def _complete(
    candidates: Sequence[Candidate], fragments: Sequence[SourceFragment], counted: Sequence[str]
) -> Gate:
    without = [name for name in counted if not any(f.primitive == name and f.text for f in fragments)]
    if without:
        return Gate("source found", Verdict.INCONCLUSIVE, f"no source text for {', '.join(without)}")
    if not counted:
        return Gate("source found", Verdict.INCONCLUSIVE, "nothing to look for")
    rejected = ", ".join(item.pattern for item in candidates if item.decision != "go") or "none"
    return Gate("source found", Verdict.PASS, f"every counted primitive; not pursued: {rejected}")


def _api_stage(study: Study, said: str) -> Gate:
    if said:
        return Gate("API stage", Verdict.PASS, said)
    if study.target == "npu":
        return Gate("API stage", Verdict.INCONCLUSIVE, "say in `api_stage` whether the API stage was passed")
    reason = f"does not apply: target {study.target} has no NPU runtime to inject into"
    return Gate("API stage", Verdict.PASS, reason)
