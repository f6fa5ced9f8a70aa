"""The places of a graph that resemble a pattern, each with its nearest variant and the alignment.

Equal sites of a model's repeated blocks share one alignment: their neighbourhoods are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch.fx

from fusionkit.match.explanation.align import Aligner, Alignment
from fusionkit.match.explanation.calls import Calls
from fusionkit.match.explanation.composites import is_same_in_prims, wholes_of
from fusionkit.match.explanation.moves import LONGEST_PASS, ODD, Node, Step
from fusionkit.match.explanation.variants import Variant
from fusionkit.match.ops import FORM_OPS, is_cast, packet

_MOST_MARKERS = 3  # number of marker ops, around whose nodes sites are searched
BUDGETS = (3.0, 7.0)  # cost limits of the alignments, tried one after the other
_MOST_ENDS = 8  # ends of a site around one node that are tried, lowest bound first
_SHORT = 4  # number of ops of a pattern that is short
_SLACK = 2  # number of additional nodes that a site may have between a marker node and its end


@dataclass(frozen=True, slots=True)
class Place:
    """One place in the graph with its nearest variant; `likeness` orders places, lowest first.

    A variant that begins behind a cast of the site, as one of another dtype does, is less alike.
    """

    variant: Variant
    alignment: Alignment
    likeness: float

    @property
    def is_near(self) -> bool:
        """Whether the place has most of the pattern's ops, in any overload."""
        calls = self.variant.calls
        return 2 * self._same > len(calls) and self.alignment.cost <= near_cost(calls)

    @property
    def is_half_near(self) -> bool:
        """Whether the place has half of the ops of a short pattern, and ops of the same kind for the others.

        One change leaves no more than half of two ops. Form ops, such as products, are a kind of their own.
        """
        calls = self.variant.calls
        short = len(calls) <= _SHORT and 2 * self._same >= len(calls)
        fits = all(_is_of_a_kind(step) for step in self.alignment.steps)
        return short and fits and self.alignment.cost <= near_cost(calls) + 0.2

    @property
    def _same(self) -> int:
        """Number of the pattern's ops that the place has, in any overload, as prims or as a composite."""
        pairs = self.alignment.pairs.items()
        same = {p for p, g in pairs if packet(p) == packet(g) or is_same_in_prims(p, g)}
        for step in self.alignment.steps:
            same.update((step.p, *step.members) if step.kind == "composite" else ())
        return len(same.intersection(self.variant.calls))


def near_cost(calls: Sequence[Node]) -> float:
    """The highest cost at which a place is near a pattern with these calls."""
    return 0.6 + 0.4 * len(calls)


class Places:
    """Finds the places of a pattern's variants in one graph."""

    def __init__(self, nodes: Sequence[Node], variants: Sequence[Variant]) -> None:
        self.nodes = [node for node in nodes if node.op == "call_function"]
        self.calls = Calls()
        self.present = Counter(self.calls[node].packet for node in self.nodes)
        self.variants = list(variants)
        self._aligners = [Aligner(item.graph, self.calls, [*item.scalars.values()]) for item in variants]
        self._reach = max((aligner.height for aligner in self._aligners), default=0) + _SLACK
        self._known: dict[tuple[Any, ...], list[tuple[_Neighbourhood, Place | None]]] = {}
        self._order = {node: index for index, node in enumerate(self.nodes)}

    def _markers(self) -> list[str]:
        """The ops that best identify this fusion's sites: a few that are rare in the graph and not in FORM_OPS."""
        calls = [node for variant in self.variants for node in variant.calls]
        seen = Counter(self.calls[node].packet for node in calls)
        there = [name for name in seen if self.present[name]]
        order = sorted(there, key=lambda name: (name in FORM_OPS, self.present[name], -seen[name]))
        return [*wholes_of(calls, self.nodes), *order[:_MOST_MARKERS]]

    def find(self, free: Sequence[Node], budgets: Sequence[float] = BUDGETS) -> list[Place]:
        """The places around the marker ops among `free`, in graph order, without overlaps.

        Alignments up to the next of `budgets` are searched only if those within the last one gave no near place.
        """
        markers = self._markers()
        anchors = [node for name in markers for node in free if self.calls[node].packet == name]
        places: list[Place] = []
        for budget in budgets:
            places = self._places_within(budget, anchors, set(free))
            if any(place.is_near for place in places):
                break
        return self._apart(places)

    def _places_within(self, budget: float, anchors: Sequence[Node], allowed: set[Node]) -> list[Place]:
        """The places around each anchor in turn; nodes of a near place are not searched again.

        A place with more than a quarter of its nodes not `allowed`, such as nodes of matches, is left out.
        """
        places: list[Place] = []
        settled: set[Node] = set()
        for anchor in anchors:
            place = None if anchor in settled else self._around(anchor, budget, allowed)
            nodes = () if place is None else place.alignment.graph_nodes
            if place is not None and 4 * sum(node not in allowed for node in nodes) <= len(nodes):
                places.append(place)
                settled.update(nodes if place.is_near else ())
        return places

    def _around(self, anchor: Node, budget: float, allowed: set[Node]) -> Place | None:
        """The nearest variant aligned with `anchor`, with its end among `allowed` and a cost below `budget`."""
        ends = users_within([anchor], self._reach)
        here = _neighbourhood(anchor, ends, self._reach + LONGEST_PASS)
        key = (*here.key, budget, *(end in allowed for end in ends))
        for there, known in self._known.get(key, ()):
            if known is None:
                return None
            alignment = _moved(known.alignment, there, here)
            if alignment is not None:
                return replace(known, alignment=alignment)
        place = self._search(anchor, budget, allowed)
        self._known.setdefault(key, []).append((here, place))
        return place

    def _tried(self, anchor: Node, budget: float) -> list[tuple[Variant, Aligner, float]]:
        """The variants to align with `anchor`, each with the cost limit of its alignment."""
        del anchor
        pairs = zip(self.variants, self._aligners, strict=True)
        return [(variant, aligner, budget) for variant, aligner in pairs]

    def _has(self, alignment: Alignment, anchor: Node) -> bool:
        """Whether an alignment is one around `anchor`."""
        return anchor in alignment.graph_nodes

    def _search(self, anchor: Node, budget: float, allowed: set[Node]) -> Place | None:
        best: Place | None = None
        for variant, aligner, most in self._tried(anchor, budget):
            steps = aligner.height_of(self.calls[anchor].packet) + _SLACK
            gain = 0.3 * aligner.size
            limit = most if best is None else min(most, best.likeness + gain)
            ends = [end for end in users_within([anchor], steps) if end in allowed]
            bounds = sorted((aligner.bound(end, limit), self._order[end], end) for end in ends)
            for bound, _, end in bounds[:_MOST_ENDS]:
                limit = most if best is None else min(most, best.likeness + gain)
                if bound >= limit:
                    break
                alignment = aligner.align(end, limit)
                if alignment is not None and self._has(alignment, anchor):
                    likeness = alignment.cost - gain + ODD * _begins_behind_a_cast(alignment)
                    if best is None or likeness < best.likeness:
                        best = Place(variant, alignment, likeness)
        return best

    def _apart(self, places: Sequence[Place]) -> list[Place]:
        """The places in graph order; of those that share most of their nodes only the nearest."""
        kept: list[Place] = []
        for place in sorted(places, key=lambda item: item.likeness):
            own = set(place.alignment.pairs.values())
            if not any(2 * len(own & set(other.alignment.pairs.values())) > len(own) for other in kept):
                kept.append(place)
        return sorted(kept, key=lambda place: self._order[place.alignment.roots[0][1]])


def _is_of_a_kind(step: Step) -> bool:
    if step.kind == "pattern_only":
        return is_cast(step.p)
    if step.kind == "substitute" and step.g is not None:
        return (packet(step.p) in FORM_OPS) == (packet(step.g) in FORM_OPS)
    return True


def _begins_behind_a_cast(alignment: Alignment) -> bool:
    return any(isinstance(g, Node) and is_cast(g) for g in alignment.bindings.values())


def users_within(start: Sequence[Node], steps: int) -> list[Node]:
    """The nodes `start` and the calls that depend on them, up to `steps` uses away: where a site may end."""
    reached = dict.fromkeys(start)
    front = dict(reached)
    for _ in range(steps):
        users = [user for node in front for user in node.users if user.op == "call_function"]
        front = dict.fromkeys(user for user in users if user not in reached)
        reached |= front
    return list(reached)


class _Neighbourhood(NamedTuple):
    """The nodes around an anchor in a fixed order; equal `key` means equal structure and literals."""

    key: tuple[Any, ...]
    nodes: tuple[Node, ...]


def _neighbourhood(anchor: Node, ends: Sequence[Node], depth: int) -> _Neighbourhood:
    """The anchor, `ends` (nodes that depend on it), and all their operands up to `depth` levels deep."""
    nodes = dict.fromkeys([anchor, *ends])
    front = dict(nodes)
    for _ in range(depth):
        below = [n for node in front if node.op == "call_function" for n in node.all_input_nodes]
        front = dict.fromkeys(operand for operand in below if operand not in nodes)
        nodes |= front
    order = {node: index for index, node in enumerate(nodes)}
    return _Neighbourhood((len(ends), *(_call_form(node, order) for node in order)), tuple(order))


def _call_form(node: Node, order: dict[Node, int]) -> tuple[Any, ...]:
    if node.op != "call_function":
        return (node.op,)
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda operand: f"%{order.get(operand, -1)}")
    return (node.target, str(args), str(kwargs))


def _moved(alignment: Alignment, old: _Neighbourhood, new: _Neighbourhood) -> Alignment | None:
    """The alignment of one place moved to an equal one; None if it has nodes outside the compared neighbourhood."""
    there: dict[Any, Any] = dict(zip(old.nodes, new.nodes, strict=True))
    try:
        return Alignment(
            alignment.cost,
            tuple((p, there[g]) for p, g in alignment.roots),
            {p: there[g] for p, g in alignment.pairs.items()},
            {p: there[g] if isinstance(g, Node) else g for p, g in alignment.bindings.items()},
            tuple(
                replace(
                    step,
                    g=None if step.g is None else there[step.g],
                    members=tuple(there.get(m, m) for m in step.members),
                )
                for step in alignment.steps
            ),
        )
    except KeyError:
        return None
