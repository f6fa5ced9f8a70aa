"""Match a study's patterns in its graphs: compile the subject, or read its capsule."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusionkit.capture.graphs import Capture, CapturedGraph, copy_graph_module
from fusionkit.config import CompilationConfig
from fusionkit.errors import MisuseError
from fusionkit.match.matching import Matching, device_of, matching_of
from fusionkit.passes.compiled import pattern_groups
from fusionkit.passes.session import match_pass_for
from fusionkit.passes.site_match import SiteMatch
from fusionkit.phases.study import Study


@dataclass(frozen=True, slots=True)
class Matched:
    """The matching of phase 5, and the graphs before and after rewriting, for the evidence."""

    matching: Matching
    before: Capture
    after: Capture


def match_study(study: Study) -> Matched:
    """Compile the study's subject with its patterns; or match them in copies of its capsule's graphs.

    Raises MisuseError for a capsule without a graph in the study's window.
    """
    if study.capture is not None:
        return _match_capsule(study.capture, study.config())
    compiled = study.compile()
    return Matched(matching_of(compiled), compiled.capture(), compiled.capture(compiled.after))


def _match_capsule(capture: Capture, config: CompilationConfig) -> Matched:
    """Match and rewrite copies of a capsule's graphs."""
    graphs = capture.in_window(config.window)
    if not graphs:
        windows = ", ".join(dict.fromkeys(graph.window for graph in capture.graphs)) or "none"
        raise MisuseError(
            f"subject {capture.subject}: the capsule has no graph in window {config.window} (it has: {windows})"
        )
    groups = pattern_groups(config)
    matcher = match_pass_for(groups, capture.decompositions, device_of(graphs))
    matches: list[SiteMatch] = []
    after = []
    for graph in graphs:
        module = copy_graph_module(graph.module)
        matches += matcher.apply(module, graph.key.index)
        after.append(CapturedGraph(graph.key, graph.window, module))
    return Matched(
        Matching(capture, config.window, groups, tuple(matches)),
        replace(capture, graphs=graphs),
        replace(capture, graphs=tuple(after)),
    )
