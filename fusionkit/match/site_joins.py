"""Joining the sites counted in eager mode with the matches in the compile graph."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch.fx

from fusionkit.capture.graphs import CapturedGraph
from fusionkit.capture.sources import module_path, source_line, source_text
from fusionkit.encoding import Result
from fusionkit.fusions import fused_packets
from fusionkit.match.ops import packet
from fusionkit.passes.site_match import SiteMatch
from fusionkit.subjects.site_counts import ExpectedSite


@dataclass(frozen=True, slots=True)
class FusedSite(Result, also=("reason",), without=("op",), keys={"graph_index": "graph"}):
    """A fused op that the graph has before any pattern; `source`: the model's own line that calls `op`."""

    anchor: str
    module: str
    source: str
    graph_index: int
    op: str

    @property
    def reason(self) -> str:
        """The source line that fused the site, and its op."""
        return f"already fused by the library: {self.source} calls {self.op}"


@dataclass(frozen=True, slots=True)
class SiteJoin:
    """The assignment of matches and fused ops to expected sites.

    `joined`: each expected site with its match or fused op; `missing`: expected sites without one; `surplus`:
    matches and fused ops where no site was counted.
    """

    joined: tuple[tuple[ExpectedSite, SiteMatch | FusedSite], ...]
    missing: tuple[ExpectedSite, ...]
    surplus: tuple[SiteMatch | FusedSite, ...]


def already_fused(pattern: str, graphs: Sequence[CapturedGraph]) -> tuple[FusedSite, ...]:
    """Fused ops of `pattern` that the model's own source calls (as diffusers' RMSNorm does if torch_npu is installed).

    A fused op that a pattern inserted has the source line of the replaced chain, which does not name the op.
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
    """The op's bare name, if the node's source statement contains it and is not in a pattern file."""
    op = wanted.partition(".")[2]
    in_pattern = source_line(node).partition(":")[0].endswith("_pattern.py")
    return op if not in_pattern and re.search(rf"\b{re.escape(op)}\b", source_text(node)) else None


def join_sites(expected: Sequence[ExpectedSite], candidates: Sequence[SiteMatch | FusedSite]) -> SiteJoin:
    """Assign to each expected site the first free candidate of its module; sites of one module in graph order.

    A candidate belongs to a module if any of its nodes does: a chain may start in a norm and end in the block
    around it.
    """
    free = list(candidates)
    joined: list[tuple[ExpectedSite, SiteMatch | FusedSite]] = []
    missing: list[ExpectedSite] = []
    for site in expected:
        match = next((item for item in free if site.module in _modules(item)), None)
        if match is None:
            missing.append(site)
            continue
        free.remove(match)
        joined.append((site, match))
    return SiteJoin(tuple(joined), tuple(missing), tuple(free))


def _modules(item: SiteMatch | FusedSite) -> tuple[str, ...]:
    return item.modules if isinstance(item, SiteMatch) else (item.module,)
