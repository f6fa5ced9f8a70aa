"""One match of a pattern at one site of a graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fusionkit.encoding import Result


@dataclass(frozen=True, slots=True)
class SiteMatch(Result, without=("pattern", "modules", "arguments", "cause"), keys={"graph_index": "graph"}):
    """One match of one variant. Node names are those of the graph before any pattern was applied.

    `status`: "hit", "skipped" (a documented limit of the fused op excludes this site) or "refused" (the replacement
    does not fit here); `reason`: why, for the last two. `anchor`: the node that the pattern's root matched;
    `module`: the module path of that node, `modules`: those of all matched nodes. `arguments`: pattern argument ->
    node name or literal. `cause`: the cause type of a match that is refused.
    """

    pattern: str
    variant: str
    graph_index: int
    status: str
    reason: str | None
    anchor: str
    module: str
    source: str
    nodes: tuple[str, ...]
    modules: tuple[str, ...] = ()
    arguments: dict[str, Any] = field(default_factory=dict)
    cause: str = ""


def count_hits(patterns: Iterable[str], matches: Iterable[SiteMatch]) -> dict[str, int]:
    """Number of hits by pattern, 0 for a pattern without one."""
    counted = dict.fromkeys(patterns, 0)
    for match in matches:
        counted[match.pattern] += match.status == "hit"
    return counted
