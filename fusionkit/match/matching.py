"""A matching: graphs, pattern groups and the matches between them, from a subject, a capsule or a capture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fusionkit.capture.aot import decomposition_table
from fusionkit.capture.counted import by_first_path
from fusionkit.capture.foreign import keep_composites
from fusionkit.capture.graphs import Capture, CapturedGraph, copy_graph_module
from fusionkit.capture.reading import read_capsule
from fusionkit.config import CompilationConfig
from fusionkit.errors import MisuseError
from fusionkit.npu.target import current_target, use_target
from fusionkit.passes.compiled import Compiled, compile_subject, pattern_groups
from fusionkit.passes.graph_entries import FileGroup
from fusionkit.passes.match_pass import PatternMatchPass, match_pass_for
from fusionkit.passes.registering import PatternClass, UnmatchableError, name_of
from fusionkit.passes.site_match import SiteMatch
from fusionkit.passes.tracing import TraceFunction, make_tracer
from fusionkit.subjects.build import Subject
from fusionkit.subjects.load import load_subject
from fusionkit.subjects.site_counts import ExpectedCount, expected_counts
from fusionkit.subjects.table import is_capsule


@dataclass(frozen=True, slots=True)
class Matching:
    """The graphs of one window before the patterns and `rewritten` by them, the groups tried, and every match.

    `pattern_table`: name of the decomposition table of the patterns' traces; None: the capture's own. `unusable`: the
    classes that took no part, each with the error of its registration.
    """

    capture: Capture
    window: str
    groups: Mapping[str, Sequence[PatternClass]]
    matches: tuple[SiteMatch, ...]
    pattern_table: str | None = None
    rewritten: tuple[CapturedGraph, ...] = ()
    unusable: Mapping[PatternClass, MisuseError] = field(default_factory=dict)

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
        keep_composites(node for graph in self.capture.graphs for node in graph.nodes)
        return make_tracer(decomposition_table(self.traced_with), sources=True)


def open_subject(
    name: str, *, target: str, train: bool = False, tell: Callable[[str], None] = lambda _: None, **build: Any
) -> tuple[Subject | Capture, Mapping[str, ExpectedCount]]:
    """Activate the target, then load the subject and count its sites in eager mode; or read a capsule (`*.json`).

    `build`: size, dtype and seed; a capsule has its own, and its own counts. `tell` is called with each step of the
    build. The target comes first, since libraries look for an NPU when they are imported.
    """
    if is_capsule(name):
        use_target(target)
        capture = read_capsule(Path(name))
        return capture, capture.counts
    tell(f"loading {name}")
    use_target(target, tell=tell)
    subject = load_subject(name, train=train, **build)
    tell("counting sites in eager mode")
    return subject, expected_counts(subject)


def match_subject(source: Subject | Capture, config: CompilationConfig, **options: Any) -> Matching:
    """Match the config's patterns in a compile of a subject, or in copies of a capture's graphs.

    `options`: those of compile_subject; a capture is neither compiled nor run. Raises MisuseError when a capture has
    no graph in the config's window, and for a variant that torch's matcher cannot represent.
    """
    if isinstance(source, Capture):
        return match_groups(source, pattern_groups(config), config.window, tolerates=())
    return matching_of(compile_subject(source, config, **options))


def matching_of(compiled: Compiled) -> Matching:
    """The matching of a compile through the kit."""
    capture = by_first_path(compiled.capture(), compiled.subject.model)
    return Matching(
        capture, compiled.config.window, compiled.groups, compiled.matches, rewritten=compiled.after
    )


def match_groups(
    capture: Capture,
    groups: Mapping[str, Sequence[PatternClass]],
    window: str,
    *,
    pattern_table: str | None = None,
    tolerates: tuple[type[MisuseError], ...] = (UnmatchableError,),
) -> Matching:
    """Match pattern groups in copies of the graphs of one window of a capture; nothing is compiled or run.

    The patterns are traced with the capture's decomposition table (or `pattern_table`), on the device of its graphs.
    A class whose registration raises an error of `tolerates` is left out, and is in the matching's `unusable`.
    Raises MisuseError when the capture has no graph in the window.
    """
    use_target(current_target() or "cpu")  # the replacements' ops exist on an active target only
    graphs = capture.in_window(window)
    if not graphs:
        windows = ", ".join(dict.fromkeys(graph.window for graph in capture.graphs)) or "none"
        raise MisuseError(
            f"subject {capture.subject}: no graph was captured in window {window} (there is: {windows});"
            " capture it with --window"
        )
    keep_composites(node for graph in capture.graphs for node in graph.nodes)
    matcher, unusable = _usable(groups, pattern_table or capture.decompositions, device_of(graphs), tolerates)
    matches: list[SiteMatch] = []
    rewritten = []
    for graph in graphs:
        module = copy_graph_module(graph.module)
        matches += matcher.apply(module, graph.key.index)
        rewritten.append(CapturedGraph(graph.key, graph.window, module))
    return Matching(capture, window, groups, tuple(matches), pattern_table, tuple(rewritten), unusable)


def _usable(
    groups: Mapping[str, Sequence[PatternClass]],
    table: str,
    device: str,
    tolerates: tuple[type[MisuseError], ...],
) -> tuple[PatternMatchPass, dict[PatternClass, MisuseError]]:
    """A match pass over the classes that can be registered, and the errors of the others.

    A class is left out as soon as an error names it, so that the time limit of endless code is waited for only once.
    """
    register = partial(match_pass_for, decompositions=table, device=device)
    unusable: dict[PatternClass, MisuseError] = {}
    while True:
        try:
            return register(groups), unusable
        except tolerates as error:
            classes = [pattern for group in groups.values() for pattern in group]
            failure = _refused(error, classes, register, tolerates)
            if failure is None and not any(isinstance(group, FileGroup) for group in groups.values()):
                raise
        if failure is None:  # then a graph entry failed: drop the entries
            groups = {name: list(group) for name, group in groups.items()}
            continue
        refused, refusal = failure
        unusable[refused] = refusal
        groups = {
            name: [pattern for pattern in group if pattern is not refused] if refused in group else group
            for name, group in groups.items()
        }


def _refused(
    error: MisuseError,
    classes: Sequence[PatternClass],
    register: Callable[[Mapping[str, Sequence[PatternClass]]], PatternMatchPass],
    tolerates: tuple[type[MisuseError], ...],
) -> tuple[PatternClass, MisuseError] | None:
    """The class that the error names, else the first one that cannot be registered alone, with its error."""
    named = [pattern for pattern in classes if str(error).startswith(f"pattern {name_of(pattern)}: ")]
    if len(named) == 1:
        return named[0], error
    for pattern in named or classes:
        try:
            register({"alone": [pattern]})
        except tolerates as alone:
            return pattern, alone
    return None


def device_of(graphs: Sequence[CapturedGraph]) -> str:
    """The device of most nodes, `cpu` if no node is a tensor."""
    values = (node.meta.get("val") for graph in graphs for node in graph.nodes)
    devices = Counter(str(value.device) for value in values if isinstance(value, torch.Tensor))
    return devices.most_common(1)[0][0] if devices else "cpu"
