"""Joining two independent lists: the sites counted in eager mode, and the matches in the compile graph."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch.fx

from fusionkit.capture.graphs import CapturedGraph
from fusionkit.capture.sources import module_path, source_line, source_text
from fusionkit.fusions import fused_packets
from fusionkit.match.ops import packet
from fusionkit.passes.site_match import SiteMatch
from fusionkit.subjects.site_counts import ExpectedSite


@dataclass(frozen=True, slots=True)
class FusedSite:
    """A fused op that stood in the graph before any pattern: `source` is the model's own line that calls `op`."""

    anchor: str
    module: str
    source: str
    graph_index: int
    op: str

    @property
    def reason(self) -> str:
        """Which line fused the site, and with what."""
        return f"already fused by the library: {self.source} calls {self.op}"

    def to_dict(self) -> dict[str, str | int | None]:
        """The SITE of the JSON interface, with the graph's index."""
        return {
            "anchor": self.anchor,
            "module": self.module,
            "source": self.source,
            "reason": self.reason,
            "graph": self.graph_index,
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
    """Fused ops of `pattern` that the model's own source calls (diffusers' RMSNorm does, where torch_npu is there).

    A fused op that a pattern put in keeps the source of the chain it replaced: a line that does not name it.
    """
    wanted = fused_packets(pattern)
    return tuple(
        FusedSite(node.name, module_path(node), source_line(node), graph.key.index, op)
        for graph in graphs
        for node in graph.nodes
        if node.op == "call_function"
        and packet(node) in wanted
        and (op := _called_by_name(node, packet(node))) is not None
    )


def _called_by_name(node: torch.fx.Node, wanted: str) -> str | None:
    """The op's bare name, if the source statement of the node names it outside of a pattern file."""
    op = wanted.partition(".")[2]
    in_pattern = source_line(node).partition(":")[0].endswith("_pattern.py")
    return op if not in_pattern and re.search(rf"\b{re.escape(op)}\b", source_text(node)) else None


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
