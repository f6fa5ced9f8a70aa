"""Joining two independent lists: the sites counted in eager mode, and the matches in the compile graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusionkit.capture.graphs import CapturedGraph
from fusionkit.capture.sources import module_path, source_line
from fusionkit.match.ops import FUSED_OPS, packet
from fusionkit.passes.hits import SiteMatch
from fusionkit.subjects.sites import ExpectedSite


@dataclass(frozen=True, slots=True)
class FusedSite:
    """A fused op that stood in the graph before any pattern: the library called it itself."""

    anchor: str
    module: str
    source: str
    graph_index: int

    def to_dict(self) -> dict[str, str | None]:
        """The SITE of the JSON interface."""
        return {
            "anchor": self.anchor,
            "module": self.module,
            "source": self.source,
            "reason": "already fused by the library",
        }


@dataclass(frozen=True, slots=True)
class SiteJoin:
    """Each expected site with what stands for it, and the matches that stand for none.

    `joined` pairs an expected site with its match or fused op; `missing` are sites with neither; `surplus` are
    matches and fused ops at places that the independent count does not know.
    """

    joined: tuple[tuple[ExpectedSite, SiteMatch | FusedSite], ...]
    missing: tuple[ExpectedSite, ...]
    surplus: tuple[SiteMatch | FusedSite, ...]


def already_fused(pattern: str, graphs: Sequence[CapturedGraph]) -> tuple[FusedSite, ...]:
    """Fused ops of `pattern` in graphs that no pattern has touched yet."""
    wanted = FUSED_OPS.get(pattern, ())
    return tuple(
        FusedSite(node.name, module_path(node), source_line(node), graph.key.index)
        for graph in graphs
        for node in graph.nodes
        if node.op == "call_function" and packet(node) in wanted
    )


def join_sites(expected: Sequence[ExpectedSite], found: Sequence[SiteMatch | FusedSite]) -> SiteJoin:
    """Give each expected site the first free find of its module; several sites of a module go in graph order.

    A find belongs to a module if any of its nodes was produced there: a chain may start in a norm and end in
    the block around it.
    """
    free = list(found)
    joined: list[tuple[ExpectedSite, SiteMatch | FusedSite]] = []
    missing: list[ExpectedSite] = []
    for site in expected:
        match = next((item for item in free if _belongs(item, site.module)), None)
        if match is None:
            missing.append(site)
            continue
        free.remove(match)
        joined.append((site, match))
    return SiteJoin(tuple(joined), tuple(missing), tuple(free))


def _belongs(found: SiteMatch | FusedSite, module: str) -> bool:
    modules = found.modules if isinstance(found, SiteMatch) else (found.module,)
    return module in modules
