"""Prefix isolation: counting the matches of ever longer prefixes of a pattern in the real graph.

A prefix returns the last op's result and every value that the rest of the
pattern uses: torch's matcher allows users outside the pattern for outputs only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch._inductor.pattern_matcher import Match, PatternMatcherPass

from fusionkit.capture.aot import decomposition_table
from fusionkit.capture.foreign import keep_composites
from fusionkit.capture.graphs import Capture, CapturedGraph, copy_graph_module
from fusionkit.capture.sources import source_line
from fusionkit.config import select_patterns
from fusionkit.encoding import Result
from fusionkit.errors import MisuseError
from fusionkit.match.explanation.prefixes import Decompositions, Prefixes, cone
from fusionkit.match.explanation.rows import call_text
from fusionkit.match.explanation.variants import Variant
from fusionkit.match.matching import device_of
from fusionkit.passes.registering import (
    PatternClass,
    UnmatchableError,
    register_pattern,
)
from fusionkit.passes.registry import enabled_groups
from fusionkit.passes.tracing import TraceFunction, make_tracer
from fusionkit.passes.trial import trial_groups

SCHEMA = "fusionkit.isolate/1"


@dataclass(frozen=True, slots=True)
class Level:
    """One prefix: the pattern up to and including `node`, with its number of matches in the graphs."""

    node: str
    call: str
    source: str
    nodes: int
    hits: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Isolation(Result):
    """The levels of one variant, in the order in which its ops are called.

    `sites`: the expected number of hits, None without a site count. `falls_at`: the first level with fewer hits than
    that (than one without a site count); None if there is none.
    """

    variant: str
    levels: tuple[Level, ...]
    sites: int | None

    @property
    def falls_at(self) -> Level | None:
        """The first level that loses hits."""
        wanted = self.sites or 1
        return next((level for level in self.levels if level.hits < wanted), None)

    def to_dict(self) -> dict[str, Any]:
        """The isolate JSON."""
        fall = self.falls_at
        return Result.to_dict(self) | {"falls_at": None if fall is None else fall.node}


def isolate(
    graphs: Sequence[CapturedGraph],
    variant: Variant,
    trace: TraceFunction,
    device: str,
    sites: int | None = None,
    decompositions: Decompositions | None = None,
) -> Isolation:
    """Count the hits of every prefix of a variant, shortest first, in copies of `graphs`.

    `decompositions`: the table of `trace`.
    """
    levels = []
    prefixes = Prefixes(variant, trace, device, decompositions or {})
    for node in prefixes.calls:
        inside = cone(node)
        used = [one for one in prefixes.calls if one in inside - {node} and not inside.issuperset(one.users)]
        note, hits = "", 0
        try:
            hits = _count(graphs, prefixes.up_to(node, used), trace, device)
        except UnmatchableError as error:
            note = str(error)
        calls = sum(1 for item in inside if item.op == "call_function")
        levels.append(Level(node.name, call_text(node), source_line(node), calls, hits, note))
    return Isolation(variant.name, tuple(levels), sites)


def _count(graphs: Sequence[CapturedGraph], pattern: PatternClass, trace: TraceFunction, device: str) -> int:
    matches: list[Match] = []

    def keep(_: PatternClass, match: Match) -> bool:
        matches.append(match)
        return False

    matcher = PatternMatcherPass(pass_name="fusionkit_isolate")
    register_pattern(pattern, matcher, trace, keep, device)
    for graph in graphs:
        matcher.apply(copy_graph_module(graph.module))
    return len(matches)


@dataclass(frozen=True, slots=True)
class IsolationReport(Result, schema=SCHEMA):
    """The isolation of every variant of a pattern, the one with the longest matching prefix first."""

    pattern: str
    window: str
    variants: tuple[Isolation, ...]


def isolate_capture(
    capture: Capture, pattern: str | Path, *, window: str = "before-freezing"
) -> IsolationReport:
    """Isolate every variant of a kit pattern, or of a pattern file's classes, in the graphs of one window.

    Raises MisuseError for a file without pattern classes, or a window without graphs.
    """
    graphs = capture.in_window(window)
    if not graphs:
        raise MisuseError(f"subject {capture.subject}: no graph was captured in window {window}")
    path = Path(pattern) if str(pattern).endswith(".py") else None
    groups = trial_groups(path) if path is not None else enabled_groups(select_patterns((str(pattern),)))
    keep_composites(node for graph in capture.graphs for node in graph.nodes)
    table = decomposition_table(capture.decompositions)
    trace = make_tracer(table, sources=True)
    device = device_of(graphs)
    sites = {name: count.expected for name, count in capture.counts.items()}
    isolations = [
        isolate(graphs, Variant(item, trace, device), trace, device, sites.get(name), table)
        for name, group in groups.items()
        for item in group
    ]
    isolations.sort(key=lambda item: (item.falls_at is not None, -_reached(item)))
    return IsolationReport(str(pattern), window, tuple(isolations))


def _reached(item: Isolation) -> int:
    """The number of levels before hits are lost."""
    return len(item.levels) if item.falls_at is None else item.levels.index(item.falls_at)
