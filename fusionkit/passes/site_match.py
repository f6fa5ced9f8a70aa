"""One match of a pattern at one site of a graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class SiteMatch:
    """One match of one variant. Node names are those of the graph before any pattern was applied.

    `status`: "hit", "skipped" (a documented limit of the fused op excludes this site) or "refused" (the replacement
    does not fit here); `reason`: why, for the last two. `anchor`: the node that the pattern's root matched;
    `module`: the module path of that node, `modules`: those of all matched nodes. `arguments`: pattern argument ->
    node name or literal.
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

    def to_dict(self) -> dict[str, Any]:
        """The SITE of the JSON interface, with the variant and the status."""
        return {
            "anchor": self.anchor,
            "module": self.module,
            "source": self.source,
            "reason": self.reason,
            "variant": self.variant,
            "status": self.status,
            "nodes": list(self.nodes),
            "graph": self.graph_index,
        }


def count_hits(patterns: Iterable[str], matches: Iterable[SiteMatch]) -> dict[str, int]:
    """Number of hits by pattern, 0 for a pattern without one."""
    counted = dict.fromkeys(patterns, 0)
    for match in matches:
        counted[match.pattern] += match.status == "hit"
    return counted
