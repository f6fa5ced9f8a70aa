"""Replay of a hand-written entry's hit: the graph's own nodes against the nodes that the handler inserts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch.fx
from torch._inductor.pattern_matcher import Match, PatternMatcherPass
from torch.utils._pytree import tree_leaves

from fusionkit.capture.graphs import CapturedGraph, copy_graph_module
from fusionkit.errors import MisuseError
from fusionkit.passes.graph_entries import Check, FileGroup, new_nodes, register_entries
from fusionkit.passes.registering import PatternClass
from fusionkit.passes.site_match import SiteMatch


@dataclass(frozen=True, slots=True)
class EntrySite:
    """One hit as two functions; `original` and `replacement` take the values of the nodes `inputs`, in order."""

    inputs: tuple[str, ...]
    original: Callable[..., Any]
    replacement: Callable[..., Any]


def is_entry(group: Sequence[PatternClass], variant: str) -> bool:
    """Whether `variant` names a hand-written entry of the group rather than one of its classes."""
    return isinstance(group, FileGroup) and variant not in {pattern.name() for pattern in group}


def entry_site(graph: CapturedGraph, match: SiteMatch, group: FileGroup) -> EntrySite:
    """Let the handler rewrite this one site in a copy of the graph, and extract both sides as functions.

    Their inputs are the nodes that the inserted nodes read. Raises MisuseError if the entry does not match in the
    original graph, because another pattern rewrote it first.
    """
    module = copy_graph_module(graph.module)
    with new_nodes(module.graph) as made:
        _only_at(match, group).apply(module)
    before = {node.name: node for node in graph.module.graph.nodes}
    if not made:
        raise MisuseError(
            f"pattern {match.variant}: it hit at {match.anchor} only after another pattern rewrote the graph;"
            " replay it without that pattern"
        )
    result = _successor(before[match.anchor], module)
    new = _behind(result, [node for node in made if not node._erased])
    read = {operand.name for node in new for operand in node.all_input_nodes if operand not in new}
    old = _behind(
        before[match.anchor], [n for n in graph.nodes if n.op == "call_function" and n.name not in read]
    )
    read |= {operand.name for node in old for operand in node.all_input_nodes if operand not in old}
    inputs = tuple(name for name in before if name in read)
    return EntrySite(
        inputs,
        as_function(graph.module, old, inputs, before[match.anchor]),
        as_function(module, new, inputs, result),
    )


def _only_at(match: SiteMatch, group: FileGroup) -> PatternMatcherPass:
    """A pass with the group's entries that rewrites at the match's anchor and nowhere else."""

    def check(name: str, candidate: Match, allowed: Check, _: Check | None) -> bool:
        here = name == match.variant and candidate.output_node().name == match.anchor
        return here and bool(allowed(candidate))

    matcher = PatternMatcherPass()
    for register in group.entries:
        register_entries(register, matcher, check)
    return matcher


def _successor(root: torch.fx.Node, module: torch.fx.GraphModule) -> torch.fx.Node:
    """The node that replaces `root` in the rewritten graph: the operand of the first user at the same position."""
    user = next(iter(root.users))
    place = tree_leaves((user.args, user.kwargs)).index(root)
    (same,) = [node for node in module.graph.nodes if node.name == user.name]
    successor = tree_leaves((same.args, same.kwargs))[place]
    if not isinstance(successor, torch.fx.Node):
        raise MisuseError(f"node {user.name} has no operand any more in the place of {root.name}")
    return successor


def _behind(end: torch.fx.Node, among: Collection[torch.fx.Node]) -> list[torch.fx.Node]:
    """`end` and those of the nodes `among` that it depends on through `among` only, in graph order."""
    allowed, reached, waiting = set(among), set(), [end]
    while waiting:
        node = waiting.pop()
        if node in allowed and node not in reached:
            reached.add(node)
            waiting.extend(node.all_input_nodes)
    return sorted(reached)


def as_function(
    module: torch.fx.GraphModule, nodes: Sequence[torch.fx.Node], inputs: Sequence[str], result: torch.fx.Node
) -> torch.fx.GraphModule:
    """The nodes, in graph order, as a function of the nodes `inputs`, which gives `result`."""
    cut = torch.fx.Graph()
    copies = {name: cut.placeholder(name) for name in inputs}
    for node in nodes:
        copies[node.name] = cut.node_copy(node, lambda operand: copies[operand.name])
    cut.output(copies[result.name])
    return torch.fx.GraphModule(module, cut)
