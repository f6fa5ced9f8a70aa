"""What a pattern did at one site of one graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class SiteMatch:
    """One match of one variant. Node names are those of the graph before any pattern was applied.

    `status` is "hit", "skipped" (a documented limit of the fused op forbids it here) or "refused" (the
    replacement itself does not fit); `reason` says why for the last two. `anchor` is the
    node that the pattern's root matched; `module` is that node's,
    `modules` those of all matched nodes; `arguments` maps pattern arguments to node names or literals.
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
