"""The explain report: the state of every site of one pattern, and the causes of each miss."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fusionkit.capture.capturing import capture_graphs
from fusionkit.capture.counted import with_counts
from fusionkit.capture.graphs import Capture, CapturedGraph
from fusionkit.capture.sources import module_path
from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.match.explanation.causes import Cause, plain_cause
from fusionkit.match.explanation.entry_variants import entry_variants
from fusionkit.match.explanation.explain import Explainer, SiteExplanation, below
from fusionkit.match.explanation.graph_breaks import GraphBreaks
from fusionkit.match.explanation.refusals import NEEDED
from fusionkit.match.explanation.run_causes import RunCauses, idle_variants, switch_cause, switched_on
from fusionkit.match.explanation.variants import Variant
from fusionkit.match.hits import PatternHits, judge_hits, report_hits
from fusionkit.match.matching import Matching, match_groups
from fusionkit.match.site_joins import FusedSite
from fusionkit.npu.target import current_target, use_target
from fusionkit.passes.compiled import pattern_groups
from fusionkit.passes.site_match import SiteMatch
from fusionkit.passes.trial import trial_groups
from fusionkit.subjects.build import Subject
from fusionkit.subjects.site_counts import ExpectedCount, expected_counts

SCHEMA = "fusionkit.explain/1"


@dataclass(frozen=True, slots=True)
class ExplainReport:
    """Every site of one pattern: hits and skips without causes, misses with all causes.

    `idle`: variants that can never match, with the reason.
    """

    pattern: str
    hits: PatternHits
    missed: tuple[SiteExplanation, ...]
    idle: Mapping[str, Cause] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The explain JSON; "no_such_primitive" if there is neither a site nor a similar place."""
        rows = [_row(match) for match in self.hits.matches if match.status != "refused"] + [
            _row(site) for site in self.hits.fused
        ]
        sites = [*rows, *(item.to_dict() for item in self.missed)]
        return {
            "schema": SCHEMA,
            "pattern": self.pattern,
            "answer": "sites" if sites else "no_such_primitive",
            "expected_sites": None if self.hits.count is None else self.hits.count.expected,
            "verdict": str(self.hits.verdict),
            "reason": self.hits.reason,
            "sites": sites,
            "idle": {name: cause.to_dict() for name, cause in self.idle.items()},
        }


def explain(
    subject: Subject,
    pattern: str | Path,
    *,
    window: str = "before-freezing",
    config: CompilationConfig | None = None,
) -> list[ExplainReport]:
    """Compile `subject` with one pattern and explain every site that it misses.

    `pattern`: a kit name, or the path of a pattern file, which may have several fusions (one report each). With a
    `config` the misses of a compile with that config are explained.
    """
    use_target(current_target() or "cpu")
    counts = expected_counts(subject)
    capture = with_counts(capture_graphs(subject, freezing=not subject.fake), subject.model, counts)
    return explain_capture(capture, pattern, config, window=window)


def explain_capture(
    capture: Capture,
    pattern: str | Path,
    config: CompilationConfig | None = None,
    *,
    window: str = "before-freezing",
    pattern_table: str | None = None,
) -> list[ExplainReport]:
    """Match a pattern, or a pattern file's, in the graphs of a capture and explain every site that it misses.

    Nothing is compiled or run. Without `config` only this pattern is matched, in `window`; with one, all patterns
    that it enables. `pattern_table`: the decomposition table of the pattern's trace ("none" or "inductor"), if it is
    not the model's own.
    """
    path = Path(pattern) if str(pattern).endswith(".py") else None
    names = (str(pattern),) if path is None else tuple(trial_groups(path))
    if config is None:
        config = CompilationConfig(
            fusion_patterns=select_patterns(names if path is None else ()),
            pattern_files=() if path is None else (str(path),),
            window=window,
        )
    off = switch_cause(names[0], path, config) if names else None
    if off is not None:
        config = switched_on(names[0], path, config)
    matching = match_groups(capture, pattern_groups(config), config.window, pattern_table=pattern_table)
    counts = dict(capture.counts)
    reports = [explain_pattern(matching, name, counts) for name in names]
    return reports if off is None else [_as_switched_off(report, off, counts) for report in reports]


def explain_pattern(matching: Matching, pattern: str, counts: dict[str, ExpectedCount]) -> ExplainReport:
    """Join the matches of `pattern` with the counted sites and explain each miss.

    Without a missed site of a whole count, every unmatched place with most of the pattern's ops is explained, nearest
    first.
    """
    entry = report_hits(matching, counts).patterns[pattern]
    explainers = Explainers(matching, pattern)
    counted = entry.join is not None and entry.count is not None and (entry.count.is_whole or entry.missing)
    missed = explainers.missing([s.module for s in entry.missing]) if counted else explainers.unmatched()
    return ExplainReport(pattern, entry, tuple(missed), idle_variants(explainers.variants))


def explain_missing(matching: Matching, pattern: str, modules: Sequence[str]) -> list[SiteExplanation]:
    """One explanation for each missed site of `pattern`; `modules` names the module of each, repeats allowed."""
    return Explainers(matching, pattern).missing(modules)


def _as_switched_off(report: ExplainReport, off: Cause, counts: Mapping[str, ExpectedCount]) -> ExplainReport:
    """The report for the disabled pattern: its hits become misses, and the switch is the first cause of every miss."""
    hits = [match for match in report.hits.matches if match.status == "hit"]
    lost = [
        SiteExplanation(
            match.anchor,
            match.module,
            match.source,
            "miss",
            match.variant,
            (dataclasses.replace(off, graph_node=match.anchor),),
            nodes=match.nodes,
        )
        for match in hits
    ]
    missed = [dataclasses.replace(item, causes=(off, *item.causes)) for item in report.missed]
    left = tuple(match for match in report.hits.matches if match.status != "hit")
    entry = judge_hits(report.pattern, left, report.hits.fused, counts.get(report.pattern))
    return ExplainReport(report.pattern, entry, (*lost, *missed), report.idle)


class Explainers:
    """The explainers of one pattern, one for each graph, created on first use."""

    def __init__(self, matching: Matching, pattern: str) -> None:
        self._matching = matching
        self._pattern = pattern
        self._made: dict[int, Explainer] = {}
        trace = matching.tracer()
        group = matching.groups[pattern]
        self.variants = [Variant(item, trace, matching.device) for item in group] + entry_variants(group)
        self._runs = RunCauses(matching, pattern, self.variants)

    def missing(self, modules: Sequence[str]) -> list[SiteExplanation]:
        """One explanation for each missed site; `modules` names the module of each, repeats allowed."""
        wanted = list(modules)
        explained = []
        for index, module in enumerate(wanted):
            graph, ordinal, of = self._graph_with(module), wanted[:index].count(module), wanted.count(module)
            item = self._of(graph).explain(module, ordinal, self._taken(graph), of=of)
            explained.append(self._runs.add(self._with_refusal(item)))
        return self._cut(explained) if self._matching.capture.breaks else explained

    def _cut(self, explained: Sequence[SiteExplanation]) -> list[SiteExplanation]:
        """The explanations; of a site that no graph has whole, the next place that a graph break cuts.

        Behind a break the nodes of a module have no longer its path, so that sites are assigned in order.
        """
        cut = [item for item in self.unmatched() if any(cause.type == "graph_break" for cause in item.causes)]
        return [
            dataclasses.replace(cut.pop(0), module=item.module) if cut and not item.near else item
            for item in explained
        ]

    def unmatched(self) -> list[SiteExplanation]:
        """One explanation for each unmatched place with most of the pattern's ops, nearest first."""
        near = [
            self._runs.add(self._with_refusal(item))
            for graph in self._matching.graphs
            for item in self._of(graph).near_misses(self._taken(graph))
        ]
        named = {name for item in near for name in (item.anchor, *item.nodes)}
        return [*near, *(_refused(match) for match in self._refused() if match.anchor not in named)]

    def _refused(self) -> list[SiteMatch]:
        return [match for match in self._matching.of(self._pattern) if match.status == "refused"]

    def _with_refusal(self, item: SiteExplanation) -> SiteExplanation:
        """The explanation with the refusal of a match at this site, if any, as its first cause."""
        refused = next((m for m in self._refused() if item.module in (m.module, *m.modules)), None)
        if refused is None or any(cause.type == refused.cause for cause in item.causes):
            return item
        explained = item.near and all(cause.type != "unexplained" for cause in item.causes)
        if explained and item.pattern != refused.variant:  # a variant of another dtype, for one
            return item
        (cause,) = _refused(refused).causes
        others = tuple(cause for cause in item.causes if cause.type != "unexplained")
        return dataclasses.replace(item, pattern=refused.variant, causes=(cause, *others))

    def _of(self, graph: CapturedGraph) -> Explainer:
        """The explainer of one graph."""
        index = graph.key.index
        if index not in self._made:
            taken = {
                name: match.pattern
                for match in self._matching.matches
                if match.graph_index == index and match.status == "hit"
                for name in match.nodes
            }
            breaks = GraphBreaks(self._matching.graphs, self._matching.capture.breaks)
            self._made[index] = Explainer(graph, self.variants, taken, breaks)
        return self._made[index]

    def _taken(self, graph: CapturedGraph) -> frozenset[str]:
        """Names of the nodes of `graph` in hits and skipped matches of the pattern."""
        return frozenset(
            name
            for match in self._matching.of(self._pattern)
            if match.status != "refused" and match.graph_index == graph.key.index
            for name in match.nodes
        )

    def _graph_with(self, module: str) -> CapturedGraph:
        """The first graph with unmatched nodes of `module`, else the first graph."""
        graphs = self._matching.graphs
        for graph in graphs[1:] and graphs:
            taken = self._taken(graph)
            free = (n for n in graph.nodes if n.op == "call_function" and n.name not in taken)
            if any(below(module_path(node), module) for node in free):
                return graph
        return graphs[0]


def _refused(match: SiteMatch) -> SiteExplanation:
    """A refused match as an explanation of its own: the reason of the refusal is its cause."""
    cause = plain_cause(match.cause, NEEDED[match.cause], str(match.reason), match.anchor)
    return SiteExplanation(
        match.anchor, match.module, match.source, "miss", match.variant, (cause,), nodes=match.nodes
    )


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
