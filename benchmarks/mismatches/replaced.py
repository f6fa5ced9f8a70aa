"""What the kit itself replaces, by its public face: sites where a fused op's limits do not forbid it."""

from __future__ import annotations

from fusionkit.capture.graphs import Capture
from fusionkit.match.matching import device_of
from fusionkit.passes.match_pass import match_pass_for
from fusionkit.passes.registering import PatternClass
from mismatches.sites import clean_copy


def replaced_sites(capture: Capture, *patterns: PatternClass, window: str = "before-freezing") -> list[str]:
    """The anchors of the sites that a group of these classes replaces."""
    graphs = capture.in_window(window)
    matcher = match_pass_for({"case": patterns}, capture.decompositions, device_of(graphs))
    matches = [m for graph in graphs for m in matcher.apply(clean_copy(graph.module), graph.key.index)]
    return [match.anchor for match in matches if match.status == "hit"]
