"""What a case expects at each site that it drops: the cause type, and the nodes that may be named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch.fx

from mismatches.operators import OPERATORS
from mismatches.sites import Site, Traced

# Operators that put nodes beside the op: which of the nodes made at its place are new.
_NEW: dict[str, Callable[[list[str]], list[str]]] = {
    "insert_node": lambda nodes: nodes[1:],
    "insert_before": lambda nodes: nodes[:1],
    "insert_cast": lambda nodes: nodes[-2:],
    "widen": lambda nodes: nodes[-1:],
    "absent_root": lambda nodes: nodes[-1:],
}
_GONE = ("drop_node", "drop_cast")


@dataclass(frozen=True, slots=True)
class Label:
    """One expected cause. An empty set of nodes: that side is not scored."""

    type: str
    pattern_nodes: frozenset[str] = frozenset()
    graph_nodes: frozenset[str] = frozenset()

    def to_dict(self) -> dict[str, Any]:
        return {"type": self.type, "pattern": sorted(self.pattern_nodes), "graph": sorted(self.graph_nodes)}


@dataclass(frozen=True, slots=True)
class Expected:
    """The causes of one dropped site; more than one where several things were changed."""

    site: Site
    labels: tuple[Label, ...]


def label_of(
    step: tuple[str, int, int], original: Traced, changed: Traced, site: Site, nodes: dict[str, torch.fx.Node]
) -> Label:
    """The label of one step at one site; `nodes` are the graph's, by name."""
    operator, at, _ = step
    kind = OPERATORS[operator][0]
    stands = nodes[site.of_op[at]]
    near = {
        stands.name,
        *(user.name for user in stands.users if str(user.target) == "<built-in function getitem>"),
    }
    if operator in _GONE:
        return Label(kind, frozenset(_neighbours(original, changed, at)), frozenset(near))
    made = [node.name for node in changed.at(at)]
    if operator in _NEW:
        inside = set(site.found.nodes)
        around = {user.name for user in stands.users if user.name in inside or operator == "absent_root"}
        around |= {node.name for node in stands.all_input_nodes}
        return Label(kind, frozenset(_NEW[operator](made)), frozenset(near | around))
    return Label(kind, frozenset(made), frozenset(near))


def _neighbours(original: Traced, changed: Traced, at: int) -> list[str]:
    """In the changed trace, the nodes of the ops around one that is gone."""
    places = set()
    for node in original.at(at):
        for other in (*node.users, *node.all_input_nodes):
            places.add(original.positions.get(other.name))
    return [name for place in places - {None} for name in (node.name for node in changed.at(place or 0))]


def same_elsewhere(original: Sequence[Any], changed: Sequence[Any], places: set[int]) -> bool:
    """Whether two records of events agree at every op that no operator was applied to."""
    left, right = (
        [(event.position, event.func) for event in events if event.position not in places]
        for events in (original, changed)
    )
    return left == right
