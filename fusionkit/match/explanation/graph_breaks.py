"""Sites that a graph break cuts: one part of the pattern stands in one graph, the rest in another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fusionkit.capture.graphs import CapturedGraph
from fusionkit.capture.sources import source_line
from fusionkit.match.explanation.differences import Difference
from fusionkit.match.explanation.moves import Node
from fusionkit.match.ops import packet

# The types that a node which stands in another graph gets from the alignment.
_ABSENT = ("missing_node", "dtype_path", "decomposition", "root_not_indexed")


@dataclass(frozen=True, slots=True)
class GraphBreaks:
    """The graphs of one window in order, and the reasons of the breaks between them."""

    graphs: Sequence[CapturedGraph]
    reasons: Sequence[str]

    def with_breaks(self, differences: Sequence[Difference], graph: CapturedGraph) -> list[Difference]:
        """The differences, those of nodes that another graph has as one `graph_break`."""
        if not self.reasons:
            return list(differences)
        for difference in differences:
            p = difference.pattern_node
            other = self._elsewhere(difference, graph)
            if p is None or other is None:
                continue
            cut = Difference(
                "graph_break", p, difference.graph_node, "one graph", self._actual(difference, other)
            )
            beyond = {p, *(_below(p) if _is_input(difference) else _above(p))}
            return [cut, *(item for item in differences if item.pattern_node not in beyond)]
        return list(differences)

    def _elsewhere(self, difference: Difference, graph: CapturedGraph) -> Node | None:
        """The node of another graph that is the partner of a pattern node which this graph lacks."""
        p, g = difference.pattern_node, difference.graph_node
        if p is None or g is None or p.op != "call_function" or difference.type not in _ABSENT:
            return None
        index = next(i for i, item in enumerate(self.graphs) if item is graph)
        if _is_input(difference):
            earlier = [node for item in self.graphs[:index] for node in item.nodes if _is_given(node)]
            return next((node for node in reversed(earlier) if packet(node) == packet(p)), None)
        if not _is_given(g):
            return None
        later = [node for item in self.graphs[index + 1 :] for node in item.nodes if _takes(node)]
        above = {packet(node) for node in (p, *_above(p))}
        return next((node for node in later if packet(node) in above), None)

    def _actual(self, difference: Difference, other: Node) -> str:
        lines = [source_line(node) for node in (other, difference.graph_node) if node is not None]
        reason = next((r for r in self.reasons if any(_near(line, r) for line in lines)), self.reasons[0])
        return f"{other.name} in another graph, behind a graph break: {reason}"


def _is_input(difference: Difference) -> bool:
    return difference.graph_node is not None and difference.graph_node.op == "placeholder"


def _is_given(node: Node) -> bool:
    return node.op == "call_function" and any(user.op == "output" for user in node.users)


def _takes(node: Node) -> bool:
    return node.op == "call_function" and any(operand.op == "placeholder" for operand in node.all_input_nodes)


def _near(line: str, reason: str) -> bool:
    """Whether a break's source line is in the file of `line`."""
    return any(
        place.partition(":")[0] == line.partition(":")[0] for place in re.findall(r"\S+:\d+", reason) if line
    )


def _below(node: Node) -> set[Node]:
    reached, front = set(), [node]
    while front:
        front += [operand for operand in front.pop().all_input_nodes if operand not in reached]
        reached.update(front)
    return reached


def _above(node: Node) -> set[Node]:
    reached, front = set(), [node]
    while front:
        front += [user for user in front.pop().users if user not in reached]
        reached.update(front)
    return reached
