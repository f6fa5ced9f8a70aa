"""The places of a graph that resemble a pattern, each with its nearest variant and the alignment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx

from fusionkit.capture.sources import module_path
from fusionkit.match.explanation.align import Aligner, Alignment
from fusionkit.match.explanation.calls import Calls
from fusionkit.match.explanation.composites import wholes_of
from fusionkit.match.explanation.moves import LONGEST_PASS
from fusionkit.match.explanation.surroundings import Neighbourhood, moved, neighbourhood
from fusionkit.match.explanation.variants import Variant
from fusionkit.match.ops import FORM_OPS

_MOST_MARKERS = 3  # number of marker ops, around whose nodes sites are searched
BUDGETS = (3.0, 7.0)  # cost limits of the alignments, tried one after the other
_MOST_ENDS = 8  # ends of a site around one node that are tried, lowest bound first
_SLACK = 2  # number of additional nodes that a site may have between a marker node and its end


@dataclass(frozen=True, slots=True)
class Place:
    """One place in the graph with its nearest variant; `likeness` orders places, lowest first."""

    variant: Variant
    alignment: Alignment
    likeness: float

    @property
    def modules(self) -> frozenset[str]:
        """The module paths of the alignment's nodes."""
        return frozenset(module_path(node) for node in self.alignment.graph_nodes)

    @property
    def is_near(self) -> bool:
        """Whether the place has most of the pattern's ops."""
        same = {p for p, g in self.alignment.pairs.items() if p.target == g.target}
        for step in self.alignment.steps:
            same.update((step.p, *step.members) if step.kind == "composite" else ())
        size = len(self.variant.calls)
        return (
            2 * len(same.intersection(self.variant.calls)) > size and self.alignment.cost <= 0.6 + 0.4 * size
        )


class Places:
    """Finds the places of a pattern's variants in one graph."""

    def __init__(self, nodes: Sequence[torch.fx.Node], variants: Sequence[Variant]) -> None:
        self.nodes = [node for node in nodes if node.op == "call_function"]
        self.calls = Calls()
        self.present = Counter(self.calls[node].packet for node in self.nodes)
        self.variants = list(variants)
        self._aligners = [
            Aligner(variant.graph, self.calls, tuple(variant.scalars.values())) for variant in variants
        ]
        self._reach = max((aligner.height for aligner in self._aligners), default=0) + _SLACK
        self._known: dict[tuple[Any, ...], list[tuple[Neighbourhood, Place | None]]] = {}
        self._order = {node: index for index, node in enumerate(self.nodes)}

    def markers(self) -> list[str]:
        """The ops that best identify this fusion's sites: a few that are rare in the graph and not in FORM_OPS."""
        seen = Counter(
            self.calls[node].packet for variant in self.variants for node in dict.fromkeys(variant.calls)
        )
        there = [name for name in seen if self.present[name]]
        order = sorted(there, key=lambda name: (name in FORM_OPS, self.present[name], -seen[name]))
        calls = [node for variant in self.variants for node in variant.calls]
        return [*wholes_of(calls, self.nodes), *order[:_MOST_MARKERS]]

    def find(
        self, free: Sequence[torch.fx.Node] | None = None, budgets: Sequence[float] = BUDGETS
    ) -> list[Place]:
        """The places around the marker ops (among `free`), in graph order, without overlaps.

        Alignments up to the next of `budgets` are searched only if those within the last one gave no near place.
        """
        nodes = self.nodes if free is None else free
        allowed = None if free is None else set(free)
        markers = self.markers()
        places: list[Place] = []
        for budget in budgets:
            places = self._places_within(budget, markers, nodes, allowed)
            if any(place.is_near for place in places):
                break
        return self._apart(places)

    def _places_within(
        self,
        budget: float,
        markers: Sequence[str],
        nodes: Sequence[torch.fx.Node],
        allowed: set[torch.fx.Node] | None,
    ) -> list[Place]:
        """The places around each marker op in turn; nodes of a near place are not searched again."""
        places: list[Place] = []
        settled: set[torch.fx.Node] = set()
        for wanted in markers:
            for anchor in nodes:
                if self.calls[anchor].packet != wanted or anchor in settled:
                    continue
                place = self.around(anchor, budget, allowed)
                if place is not None and not _mostly_outside(place, allowed):
                    places.append(place)
                    settled.update(place.alignment.graph_nodes if place.is_near else ())
        return places

    def around(
        self, anchor: torch.fx.Node, budget: float, allowed: set[torch.fx.Node] | None = None
    ) -> Place | None:
        """The nearest variant aligned with `anchor`, with its end among `allowed` and a cost below `budget`."""
        ends = self._ends(anchor, self._reach)
        here = neighbourhood(anchor, ends, self._reach + LONGEST_PASS)
        key = (*here.key, budget, *(allowed is None or end in allowed for end in ends))
        for there, known in self._known.get(key, ()):
            if known is None:
                return None
            alignment = moved(known.alignment, there, here)
            if alignment is not None:
                return replace(known, alignment=alignment)
        place = self._search(anchor, budget, allowed)
        self._known.setdefault(key, []).append((here, place))
        return place

    def _search(
        self, anchor: torch.fx.Node, budget: float, allowed: set[torch.fx.Node] | None
    ) -> Place | None:
        best: Place | None = None
        for variant, aligner in zip(self.variants, self._aligners, strict=True):
            steps = aligner.height_of(self.calls[anchor].packet) + _SLACK
            gain = 0.3 * aligner.size
            limit = budget if best is None else min(budget, best.likeness + gain)
            ends = [end for end in self._ends(anchor, steps) if allowed is None or end in allowed]
            bounds = sorted((aligner.bound(end, limit), self._order[end], end) for end in ends)
            for bound, _, end in bounds[:_MOST_ENDS]:
                limit = budget if best is None else min(budget, best.likeness + gain)
                if bound >= limit:
                    break
                alignment = aligner.align(end, limit)
                if alignment is not None and anchor in alignment.graph_nodes:
                    best = Place(variant, alignment, alignment.cost - gain)
        return best

    def _ends(self, anchor: torch.fx.Node, steps: int) -> list[torch.fx.Node]:
        """Nodes at which a site around `anchor` may end: the calls that depend on it, up to `steps` uses away."""
        reached, front = {anchor: None}, [anchor]
        for _ in range(steps):
            front = [
                user
                for node in front
                for user in node.users
                if user.op == "call_function" and user not in reached
            ]
            reached.update(dict.fromkeys(front))
        return list(reached)

    def _apart(self, places: Sequence[Place]) -> list[Place]:
        """The places in graph order; of those that share most of their nodes only the nearest."""
        kept: list[Place] = []
        for place in sorted(places, key=lambda item: item.likeness):
            own = set(place.alignment.pairs.values())
            if not any(2 * len(own & set(other.alignment.pairs.values())) > len(own) for other in kept):
                kept.append(place)
        return sorted(kept, key=lambda place: self._order[place.alignment.roots[0][1]])


def _mostly_outside(place: Place, allowed: set[torch.fx.Node] | None) -> bool:
    """Whether more than a quarter of a place's nodes are not `allowed`, such as nodes of matches."""
    nodes = place.alignment.graph_nodes
    return allowed is not None and 4 * sum(node not in allowed for node in nodes) > len(nodes)
