"""A matching: graphs, pattern groups and the matches between them, the input of hits and explanations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from fusionkit.capture.aot import decomposition_table
from fusionkit.capture.counted import by_first_path
from fusionkit.capture.graphs import Capture, CapturedGraph, copy_graph_module
from fusionkit.config import CompilationConfig
from fusionkit.errors import MisuseError
from fusionkit.npu.target import current_target, use_target
from fusionkit.passes.compiled import Compiled, pattern_groups
from fusionkit.passes.match_pass import PatternMatchPass, match_pass_for
from fusionkit.passes.registering import PatternClass, UnmatchableError
from fusionkit.passes.site_match import SiteMatch
from fusionkit.passes.tracing import TraceFunction, make_tracer


@dataclass(frozen=True, slots=True)
class Matching:
    """The graphs of one window before the patterns and `rewritten` by them, the groups tried, and every match.

    `pattern_table`: name of the decomposition table of the patterns' traces; None: the capture's own.
    """

    capture: Capture
    window: str
    groups: Mapping[str, Sequence[PatternClass]]
    matches: tuple[SiteMatch, ...]
    pattern_table: str | None = None
    rewritten: tuple[CapturedGraph, ...] = ()

    @property
    def graphs(self) -> tuple[CapturedGraph, ...]:
        """The graphs of the window, before the patterns."""
        return self.capture.in_window(self.window)

    @property
    def before(self) -> Capture:
        """The capture with the graphs before the patterns alone."""
        return replace(self.capture, graphs=self.graphs)

    @property
    def after(self) -> Capture:
        """The capture with the graphs after the patterns alone."""
        return replace(self.capture, graphs=self.rewritten)

    @property
    def device(self) -> str:
        """The device of most nodes, on which the patterns are traced."""
        return device_of(self.graphs)

    def of(self, pattern: str) -> tuple[SiteMatch, ...]:
        """The matches of one pattern."""
        return tuple(match for match in self.matches if match.pattern == pattern)

    @property
    def traced_with(self) -> str:
        """Name of the decomposition table that the patterns were traced with."""
        return self.pattern_table or self.capture.decompositions

    def tracer(self) -> TraceFunction:
        """A tracer with that table, which records the pattern's source lines."""
        return make_tracer(decomposition_table(self.traced_with), sources=True)


def matching_of(compiled: Compiled) -> Matching:
    """The matching of a compile through the kit."""
    capture = by_first_path(compiled.capture(), compiled.subject.model)
    return Matching(
        capture, compiled.config.window, compiled.groups, compiled.matches, rewritten=compiled.after
    )


def match_capture(
    capture: Capture, config: CompilationConfig, *, pattern_table: str | None = None, tolerant: bool = False
) -> Matching:
    """Match the config's patterns in the graphs of a capture, on copies; nothing is compiled or run.

    The patterns are traced with the capture's decomposition table (or `pattern_table`), on the device of its graphs.
    `tolerant`: a variant that torch's matcher cannot represent is left out instead of raising.
    Raises MisuseError when the capture has no graph in the config's window.
    """
    return match_groups(
        capture, pattern_groups(config), config.window, pattern_table=pattern_table, tolerant=tolerant
    )


def match_groups(
    capture: Capture,
    groups: Mapping[str, Sequence[PatternClass]],
    window: str,
    *,
    pattern_table: str | None = None,
    tolerant: bool = True,
) -> Matching:
    """Match pattern groups in the graphs of one window of a capture; see match_capture."""
    use_target(current_target() or "cpu")  # the replacements' ops exist on an active target only
    graphs = capture.in_window(window)
    if not graphs:
        windows = ", ".join(dict.fromkeys(graph.window for graph in capture.graphs)) or "none"
        raise MisuseError(
            f"subject {capture.subject}: no graph was captured in window {window} (there is: {windows});"
            " capture it with --window"
        )
    table, device = pattern_table or capture.decompositions, device_of(graphs)
    try:
        matcher = match_pass_for(groups, table, device)
    except UnmatchableError:
        if not tolerant:
            raise
        matcher = match_pass_for(_matchable(groups, table, device), table, device)
    matches, rewritten = apply_to_copies(matcher, graphs)
    return Matching(capture, window, groups, matches, pattern_table, rewritten)


def apply_to_copies(
    matcher: PatternMatchPass, graphs: Sequence[CapturedGraph]
) -> tuple[tuple[SiteMatch, ...], tuple[CapturedGraph, ...]]:
    """Every match in copies of the graphs, and the rewritten copies."""
    matches: list[SiteMatch] = []
    rewritten = []
    for graph in graphs:
        module = copy_graph_module(graph.module)
        matches += matcher.apply(module, graph.key.index)
        rewritten.append(CapturedGraph(graph.key, graph.window, module))
    return tuple(matches), tuple(rewritten)


def _matchable(
    groups: Mapping[str, Sequence[PatternClass]], table: str, device: str
) -> dict[str, Sequence[PatternClass]]:
    """The groups without the variants that torch's matcher cannot represent."""
    kept: dict[str, list[PatternClass]] = {name: [] for name in groups}
    for name, group in groups.items():
        for pattern in group:
            try:
                match_pass_for({name: [pattern]}, table, device)
            except UnmatchableError:
                continue
            kept[name].append(pattern)
    return dict(kept)


def device_of(graphs: Sequence[CapturedGraph]) -> str:
    """The device of most nodes, `cpu` if no node is a tensor."""
    values = (node.meta.get("val") for graph in graphs for node in graph.nodes)
    devices = Counter(str(value.device) for value in values if isinstance(value, torch.Tensor))
    return devices.most_common(1)[0][0] if devices else "cpu"
