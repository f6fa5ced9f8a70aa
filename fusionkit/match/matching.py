"""Graphs, pattern groups and the matches between them: what hits and explanations are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusionkit.capture.aot import decomposition_table
from fusionkit.capture.graphs import Capture, CapturedGraph, copy_graph_module
from fusionkit.config import CompilationConfig
from fusionkit.passes.compiled import Compiled, pattern_groups
from fusionkit.passes.hits import SiteMatch
from fusionkit.passes.registering import PatternClass
from fusionkit.passes.session import match_pass_for
from fusionkit.passes.tracing import TraceFunction, make_tracer


@dataclass(frozen=True, slots=True)
class Matching:
    """The graphs of one window before any pattern, the groups that were tried, and every match."""

    capture: Capture
    window: str
    groups: Mapping[str, Sequence[PatternClass]]
    matches: tuple[SiteMatch, ...]

    @property
    def graphs(self) -> tuple[CapturedGraph, ...]:
        """The graphs as they stood in the window before the patterns."""
        return self.capture.in_window(self.window)

    def of(self, pattern: str) -> tuple[SiteMatch, ...]:
        """The matches of one pattern."""
        return tuple(match for match in self.matches if match.pattern == pattern)

    def tracer(self) -> TraceFunction:
        """A tracer with the capture's decomposition table, which keeps the pattern's source lines."""
        return make_tracer(decomposition_table(self.capture.decompositions), sources=True)


def matching_of(compiled: Compiled) -> Matching:
    """What a compile through the kit matched."""
    return Matching(compiled.capture(), compiled.config.window, compiled.groups, compiled.matches)


def match_capture(capture: Capture, config: CompilationConfig) -> Matching:
    """Match the config's patterns in the graphs of a capture, on copies; nothing is compiled or run."""
    groups = pattern_groups(config)
    matcher = match_pass_for(groups, capture.decompositions)
    matches = [
        match
        for graph in capture.in_window(config.window)
        for match in matcher.apply(copy_graph_module(graph.module), graph.key.index)
    ]
    return Matching(capture, config.window, groups, tuple(matches))
