"""The explain report: the state of every site of one pattern, and the causes of each miss."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusionkit.capture.graphs import CapturedGraph
from fusionkit.capture.sources import module_path
from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.match.causes import plain_cause
from fusionkit.match.explain import Explainer, SiteExplanation, below
from fusionkit.match.hits import PatternHits, report_hits
from fusionkit.match.matching import Matching, matching_of
from fusionkit.match.sites import FusedSite
from fusionkit.npu.target import current_target, use_target
from fusionkit.passes.compiled import compile_subject
from fusionkit.passes.hits import SiteMatch
from fusionkit.passes.trial import trial_groups
from fusionkit.subjects.build import Subject
from fusionkit.subjects.sites import ExpectedCount, expected_counts

SCHEMA = "fusionkit.explain/1"


@dataclass(frozen=True, slots=True)
class ExplainReport:
    """Every site of one pattern: hits and skips without causes, misses with all of theirs."""

    pattern: str
    hits: PatternHits
    missed: tuple[SiteExplanation, ...]

    def to_dict(self) -> dict[str, Any]:
        """The explain JSON; "no_such_primitive" when there is neither a site nor anything like one."""
        found = [_row(match) for match in self.hits.matches if match.status != "refused"] + [
            _row(site) for site in self.hits.fused
        ]
        sites = [*found, *(item.to_dict() for item in self.missed)]
        return {
            "schema": SCHEMA,
            "pattern": self.pattern,
            "answer": "sites" if sites else "no_such_primitive",
            "sites": sites,
        }


def explain(subject: Subject, pattern: str | Path, *, window: str = "before-freezing") -> list[ExplainReport]:
    """Compile `subject` with one pattern and explain every site that it misses.

    `pattern`: a name of the kit's, or the path of a pattern file, which may hold several fusions (one report
    each).
    """
    use_target(current_target() or "cpu")
    path = Path(pattern)
    names = tuple(trial_groups(path)) if path.suffix == ".py" else (str(pattern),)
    config = CompilationConfig(
        fusion_patterns=select_patterns(() if path.suffix == ".py" else names),
        pattern_files=(str(path),) if path.suffix == ".py" else (),
        window=window,
    )
    matching = matching_of(compile_subject(subject, config))
    counts = expected_counts(subject)
    return [explain_pattern(matching, name, counts) for name in names]


def explain_pattern(matching: Matching, pattern: str, counts: dict[str, ExpectedCount]) -> ExplainReport:
    """Join the matches of `pattern` with the counted sites and explain each miss.

    Where no site was counted, every place of the graph that has the pattern's telling op and was not matched
    is explained.
    """
    entry = report_hits(matching, counts).patterns[pattern]
    if entry.join is not None:
        missed = explain_missing(matching, pattern, [site.module for site in entry.missing])
    else:
        missed = explain_unmatched(matching, pattern)
    return ExplainReport(pattern, entry, tuple(missed))


def explain_missing(matching: Matching, pattern: str, modules: Sequence[str]) -> list[SiteExplanation]:
    """One explanation for each missed site of `pattern`; `modules` names the module of each, repeats allowed."""
    explainers = _Explainers(matching, pattern)
    seen: dict[str, int] = {}
    explained = []
    for module in modules:
        graph = explainers.graph_with(module)
        item = explainers.of(graph).explain(module, seen.get(module, 0), explainers.taken(graph))
        explained.append(_with_refusal(item, matching, pattern))
        seen[module] = seen.get(module, 0) + 1
    return explained


def _with_refusal(item: SiteExplanation, matching: Matching, pattern: str) -> SiteExplanation:
    """A site whose match was refused is told so, before whatever keeps the other variants away."""
    refused = [
        m for m in matching.of(pattern) if m.status == "refused" and item.module in (m.module, *m.modules)
    ]
    if not refused:
        return item
    cause = plain_cause(
        "extra_check",
        graph_node=refused[0].anchor,
        expected="a replacement that fits here",
        actual=str(refused[0].reason),
    )
    others = tuple(cause for cause in item.causes if cause.type != "unexplained")
    return dataclasses.replace(item, pattern=refused[0].variant, causes=(cause, *others))


def explain_unmatched(matching: Matching, pattern: str) -> list[SiteExplanation]:
    """One explanation for each free node that could anchor the pattern."""
    explainers = _Explainers(matching, pattern)
    explained = []
    for graph in matching.graphs:
        taken = explainers.taken(graph)
        free = [node for node in graph.nodes if node.op == "call_function" and node.name not in taken]
        explainer = explainers.of(graph)
        explained += [explainer.explain_anchor(anchor) for anchor in explainer.anchors(free, telling=True)]
    return explained


class _Explainers:
    """One explainer of a pattern for each graph, made when a site of that graph is asked about."""

    def __init__(self, matching: Matching, pattern: str) -> None:
        self._matching = matching
        self._pattern = pattern
        self._made: dict[int, Explainer] = {}

    def of(self, graph: CapturedGraph) -> Explainer:
        """The explainer of one graph."""
        index = graph.key.index
        if index not in self._made:
            matching = self._matching
            matches = [match for match in matching.matches if match.graph_index == index]
            group = matching.groups[self._pattern]
            self._made[index] = Explainer(graph, group, matching.tracer(), matches, matching.device)
        return self._made[index]

    def taken(self, graph: CapturedGraph) -> frozenset[str]:
        """Names of the nodes of `graph` that the pattern matched and that need no explanation."""
        return frozenset(
            name
            for match in self._matching.of(self._pattern)
            if match.status != "refused" and match.graph_index == graph.key.index
            for name in match.nodes
        )

    def graph_with(self, module: str) -> CapturedGraph:
        """The graph with free nodes of `module`, the first one where none has any."""
        graphs = self._matching.graphs
        for graph in graphs[1:] and graphs:
            taken = self.taken(graph)
            if any(
                node.op == "call_function" and node.name not in taken and below(module_path(node), module)
                for node in graph.nodes
            ):
                return graph
        return graphs[0]


def _row(item: SiteMatch | FusedSite) -> dict[str, Any]:
    status = item.status if isinstance(item, SiteMatch) else "already_fused"
    variant = item.variant if isinstance(item, SiteMatch) else ""
    return {
        "anchor": item.anchor,
        "module": item.module,
        "source": item.source,
        "status": status,
        "reason": item.to_dict()["reason"],
        "pattern": variant,
        "causes": [],
    }
