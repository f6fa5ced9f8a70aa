"""Casts and copies that a rewritten graph has: of one site, and against the kit's own pattern at the same sites."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch._inductor.pattern_matcher import Match

from fusionkit.capture.graphs import Capture
from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.encoding import Result
from fusionkit.errors import USER_CODE_ERRORS
from fusionkit.fusions import registrations
from fusionkit.match.matching import Matching, match_groups
from fusionkit.match.ops import CASTS, packet
from fusionkit.match.repairing.region import Region
from fusionkit.match.repairing.region_numbers import results_of
from fusionkit.passes.admission import cast_dtype
from fusionkit.passes.compiled import pattern_groups
from fusionkit.passes.graph_entries import FileGroup
from fusionkit.passes.registering import PatternClass
from fusionkit.passes.tracing import CalledOps

COPIES = CASTS | {"aten.clone", "aten.copy", "aten.copy_", "aten.contiguous", "aten.lift_fresh_copy"}
_VIEWS = ("aten.view", "aten.reshape", "aten._unsafe_view")


@dataclass(frozen=True, slots=True)
class CopiesLeft(Result):
    """Casts and copies of the graphs, rewritten at `sites` that a file and the kit's `pattern` both hit.

    `actual`: with the file; `known`: with the kit's pattern.
    """

    pattern: str
    sites: int
    actual: int
    known: int

    @property
    def more(self) -> int:
        """How many more the file leaves; 0 if it leaves fewer."""
        return max(0, self.actual - self.known)

    def __str__(self) -> str:
        return f"it leaves {self.more} more casts and copies than the kit's {self.pattern} at the same {self.sites} sites"


def copies_added(region: Region, candidate: Callable[..., Any]) -> float:
    """Casts and copies of `candidate`, less those of the region; infinite if it does not fit in the graph there.

    A cast behind the region that has become one between equal dtypes counts as a copy.
    """
    with CalledOps() as called:
        try:
            made = results_of(region, candidate)
        except USER_CODE_ERRORS:
            return math.inf
    own = [region.value(node) for node in region.outputs]
    added = sum(_packet_of(op) in COPIES for op in called.ops) - copies_in(region.nodes)
    for node, old, new in zip(region.outputs, own, made, strict=True):
        if old.dtype != new.dtype and not all(cast_dtype(user) == new.dtype for user in node.users):
            return math.inf
    return added


def copies_in(nodes: Iterable[torch.fx.Node]) -> int:
    """Number of casts and copies among the nodes; a reshape counts if its operand's strides allow no view."""
    return sum(packet(node) in COPIES or _reshape_copies(node) for node in nodes)


def copies_left(matching: Matching, groups: Mapping[str, Sequence[PatternClass]]) -> CopiesLeft | None:
    """Compare the rewritten graphs of `matching` with those of the kit's patterns of the same fusions.

    `groups`: the kit's patterns. Only sites that both hit count; None without one, or if the file has graph entries.
    """
    if any(isinstance(group, FileGroup) for group in (*matching.groups.values(), *groups.values())):
        return None
    capture, window = matching.capture, matching.window
    known = _match_only(capture, groups, window, _nodes_of(matching))
    shared = _nodes_of(known)
    hits = [match for match in matching.matches if match.status == "hit"]
    if not shared or not hits:
        return None
    if not all({(m.graph_index, name) for name in m.nodes} & shared for m in hits):
        matching = _match_only(capture, matching.groups, window, shared)
        hits = [match for match in matching.matches if match.status == "hit"]
    patterns = dict.fromkeys(match.pattern for match in known.matches if match.status == "hit")
    return CopiesLeft(", ".join(patterns), len(hits), _copies(matching), _copies(known))


def kit_groups(fusion: str) -> dict[str, Sequence[PatternClass]]:
    """The kit's pattern group of one fusion; empty for a name that is none."""
    if fusion not in registrations():
        return {}
    return pattern_groups(CompilationConfig(fusion_patterns=select_patterns((fusion,))))


def _copies(matching: Matching) -> int:
    return sum(copies_in(graph.nodes) for graph in matching.rewritten)


def _nodes_of(matching: Matching) -> set[tuple[int, str]]:
    """Graph and name of every node of a hit."""
    hits = (match for match in matching.matches if match.status == "hit")
    return {(hit.graph_index, name) for hit in hits for name in hit.nodes}


def _match_only(
    capture: Capture,
    groups: Mapping[str, Sequence[PatternClass]],
    window: str,
    nodes: set[tuple[int, str]],
) -> Matching:
    """Match the groups at the sites that have one of these nodes."""
    names = {name for _, name in nodes}
    limited = {key: [_limited(pattern, names) for pattern in group] for key, group in groups.items()}
    return match_groups(capture, limited, window)


def _limited(pattern: PatternClass, names: set[str]) -> PatternClass:
    """The class with a further check that the match has one of the nodes."""
    own = getattr(pattern, "extra_check", None)

    def check(match: Match) -> bool:
        here = any(node.name in names for node in match.nodes)
        return here and (not callable(own) or bool(own(match)))

    return type(pattern.__name__, (pattern,), {"extra_check": staticmethod(check)})


def _packet_of(op: torch._ops.OpOverload) -> str:
    return str(op).rsplit(".", 1)[0]


def _reshape_copies(node: torch.fx.Node) -> bool:
    if node.op != "call_function" or packet(node) not in _VIEWS:
        return False
    operand, made = node.all_input_nodes[0].meta.get("val"), node.meta.get("val")
    if not isinstance(operand, torch.Tensor) or not isinstance(made, torch.Tensor):
        return False
    try:
        operand.view(made.shape)
    except USER_CODE_ERRORS:
        return True
    return False
