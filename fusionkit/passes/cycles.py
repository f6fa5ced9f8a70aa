"""Whether a rewrite would make a cycle: an argument of the match that is computed from one of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch.fx
import torch.utils._pytree as pytree
from torch._inductor.pattern_matcher import Match, stable_topological_sort

Node = torch.fx.Node
# Argument -> the matched nodes that it is computed from.
Dependencies = Mapping[Node, frozenset[Node]]


def dependent_arguments(match: Match) -> Dependencies:
    """The arguments of the match that are computed from its own nodes, each with these nodes."""
    matched = set(match.nodes)
    first = min(match.nodes)
    arguments = {leaf for leaf in pytree.tree_leaves([match.args, match.kwargs]) if isinstance(leaf, Node)}
    sources = {argument: _sources(argument, matched, first) for argument in arguments - matched}
    return {argument: nodes for argument, nodes in sources.items() if nodes}


def _sources(node: Node, matched: set[Node], first: Node) -> frozenset[Node]:
    """The matched nodes that `node` is computed from; no node before `first` is visited."""
    seen, front = {node}, [node]
    while front:
        operands = {operand for operand in front.pop().all_input_nodes if not operand < first}
        front += [operand for operand in operands - seen if operand not in matched]
        seen |= operands
    return frozenset(seen & matched)


def cycle_of(
    match: Match, dependencies: Dependencies, needs: Callable[[], Sequence[Iterable[Node]]]
) -> tuple[Node, Node] | None:
    """An argument and the output that it is computed from, if no order of the rewritten nodes exists.

    `needs`: for each output of the match, the arguments that the replacement computes it from.
    """
    outputs = [output for output in match.output_nodes() if output is not None]
    needed = dict(zip(outputs, map(set, needs()), strict=False))
    for output in outputs:
        seen: set[Node] = set()
        front = [output]
        while front:
            for argument in needed.get(front.pop(), ()):
                for source in dependencies.get(argument, frozenset()) - seen:
                    if source is output:
                        return argument, output
                    seen.add(source)
                    front.append(source)
    return None


def sort_if_misplaced(graph: torch.fx.Graph, made: Sequence[Node]) -> None:
    """Sort the graph if a node of `made` stands before one of its operands, as torch's own passes do afterwards."""
    if any(operand > node for node in made if not node._erased for operand in node.all_input_nodes):
        stable_topological_sort(graph)
