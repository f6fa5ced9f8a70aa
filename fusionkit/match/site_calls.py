"""One hit as two functions of the same inputs: the graph's own nodes, and what replaces them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch._inductor.pattern_matcher import Match, PatternMatcherPass
from torch.utils._pytree import tree_flatten, tree_leaves

from fusionkit.capture.graphs import CapturedGraph, copy_graph_module
from fusionkit.errors import MisuseError
from fusionkit.passes.admission import cast_dtype
from fusionkit.passes.graph_entries import Check, FileGroup, new_nodes, register_entries
from fusionkit.passes.registering import PatternClass, activations_of, argument_names, replacement_of
from fusionkit.passes.site_match import SiteMatch


@dataclass(frozen=True, slots=True)
class SiteCall:
    """One hit: `original` and `replacement` take the values of the nodes `inputs`, in order; `names`: of the arguments.

    form: equal for hits that compute the same on inputs of equal layout. users_cast: the dtype that all users of the
    original's result cast it to. eps, activations: as in replay_site.
    """

    name: str
    inputs: tuple[str, ...]
    names: tuple[str, ...]
    original: torch.fx.GraphModule
    replacement: Callable[..., Any]
    form: Any
    users_cast: torch.dtype | None = None
    eps: float | None = None
    activations: tuple[int, ...] | None = None

    def original_for(self, tensors: Sequence[Any]) -> Callable[..., Any]:
        """The original; with its users' cast, if the replacement gives their dtype."""
        if self.users_cast is None:
            return self.original
        with torch.no_grad():
            made = [
                leaf for leaf in tree_leaves(self.replacement(*tensors)) if isinstance(leaf, torch.Tensor)
            ]
        cast = bool(made) and made[0].dtype == self.users_cast
        return cast_result(self.original, self.users_cast) if cast else self.original


def site_call(graph: CapturedGraph, match: SiteMatch, group: Sequence[PatternClass]) -> SiteCall:
    """The hit of one of the group's classes or hand-written entries."""
    if isinstance(group, FileGroup) and is_entry(group, match.variant):
        return entry_call(graph, match, group)
    return pattern_call(graph, match, next(item for item in group if item.name() == match.variant))


def pattern_call(graph: CapturedGraph, match: SiteMatch, variant: PatternClass) -> SiteCall:
    """The hit of a class: its replacement takes the site's nodes as arguments, and the literals as they stand."""
    names = [name for name in argument_names(variant) if isinstance(match.arguments[name], dict)]
    inputs = tuple(match.arguments[name]["node"] for name in names)
    literals = {name: value for name, value in match.arguments.items() if not isinstance(value, dict)}
    original = extract_site(graph, match, inputs)
    (root,) = [node for node in graph.nodes if node.name == match.anchor]
    casts = {cast_dtype(user) for user in root.users}
    users_cast = casts.pop() if len(casts) == 1 else None
    drawn, eps = activations_of(variant), literals.get("eps")
    repeated = tuple(inputs.index(node) for node in inputs)
    return SiteCall(
        f"{match.pattern}:{match.anchor}",
        inputs,
        tuple(names),
        original,
        replacement_of(variant, names, literals),
        (_form(original), repeated, users_cast, *sorted(map(repr, literals.items()))),
        users_cast,
        float(eps) if isinstance(eps, int | float) else None,
        tuple(index for index, name in enumerate(names) if name in drawn),
    )


def extract_site(graph: CapturedGraph, match: SiteMatch, inputs: Sequence[str]) -> torch.fx.GraphModule:
    """The matched nodes as a function of the site's input nodes, in the order of `inputs`, which may repeat one."""
    nodes = [node for node in graph.nodes if node.name in match.nodes and node.name not in inputs]
    (root,) = [node for node in nodes if node.name == match.anchor]
    return as_function(graph.module, nodes, inputs, root)


def cast_result(original: Callable[..., Any], dtype: torch.dtype) -> Callable[..., Any]:
    """The same function with a cast of its result."""
    return lambda *tensors: torch.ops.aten._to_copy.default(original(*tensors), dtype=dtype)


def is_entry(group: Sequence[PatternClass], variant: str) -> bool:
    """Whether `variant` names a hand-written entry of the group rather than one of its classes."""
    return isinstance(group, FileGroup) and variant not in {pattern.name() for pattern in group}


def entry_call(graph: CapturedGraph, match: SiteMatch, group: FileGroup) -> SiteCall:
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
    original = as_function(graph.module, old, inputs, before[match.anchor])
    replacement = as_function(module, new, inputs, result)
    name = f"{match.pattern}:{match.anchor}"
    return SiteCall(name, inputs, inputs, original, replacement, (_form(original), _form(replacement)))


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
    copies: dict[str, torch.fx.Node] = {}
    for name in inputs:
        placeholder = cut.placeholder(name)
        copies.setdefault(name, placeholder)
    for node in nodes:
        copies[node.name] = cut.node_copy(node, lambda operand: copies[operand.name])
    cut.output(copies[result.name])
    return torch.fx.GraphModule(module, cut)


def _form(module: torch.fx.GraphModule) -> Any:
    """A hashable key of the nodes' targets, operands and literals."""
    number = {node: index for index, node in enumerate(module.graph.nodes)}
    rows = []
    for node in module.graph.nodes:
        leaves, spec = tree_flatten((list(node.args), dict(node.kwargs)))
        operands = tuple(f"%{number[x]}" if isinstance(x, torch.fx.Node) else repr(x) for x in leaves)
        target = "" if node.op == "placeholder" else str(node.target)
        rows.append((node.op, target, operands, str(spec)))
    return tuple(rows)
