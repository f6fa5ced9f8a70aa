"""The check of a graph after each rewrite: topological order, metadata, users, no dead nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import getitem

import torch
import torch.fx

from fusionkit.errors import MisuseError


@contextmanager
def new_nodes(graph: torch.fx.Graph) -> Iterator[list[torch.fx.Node]]:
    """Yields a list that collects the nodes created in `graph` within the block."""
    made: list[torch.fx.Node] = []
    module = graph.owning_module
    if module is None:
        raise MisuseError(
            "a graph without a module cannot be rewritten by patterns; wrap it in a GraphModule"
        )
    module._register_create_node_hook(made.append)
    try:
        yield made
    finally:
        module._unregister_create_node_hook(made.append)


def lint_rewrite(
    graph: torch.fx.Graph, pattern: str, made: Sequence[torch.fx.Node], matched: Sequence[torch.fx.Node]
) -> None:
    """Check one rewrite: the nodes that it made and matched, with their operands and users.

    The time depends on the size of the rewrite, not of the graph. Raises MisuseError naming pattern and node when a
    node is used before its definition, reads a node that is erased or of another graph, lacks meta["val"], or has
    no users.
    """
    for node in made:
        if node._erased:
            continue
        problem = _misplaced(node, graph) or _unfinished(node)
        if problem is not None:
            raise _breach(pattern, node, problem)
    for node in matched:
        if not node._erased and _is_dead(node):
            raise _breach(pattern, node, "of the replaced chain is left without users; erase it")


def lint_graph(module: torch.fx.GraphModule, patterns: Sequence[str]) -> None:
    """torch's own lint of a whole graph, after all patterns.

    Raises MisuseError with the patterns that rewrote the graph and torch's message, which names the node.
    """
    try:
        module.graph.lint()
    except (RuntimeError, AttributeError, TypeError) as error:
        what = str(error).partition("\n")[0]
        raise MisuseError(
            f"the graph is broken after {', '.join(patterns)} rewrote it: {what}; mend what the handler inserts"
        ) from error


def _breach(pattern: str, node: torch.fx.Node, what: str) -> MisuseError:
    return MisuseError(f"pattern {pattern}: after its rewrite, node {node.name} ({node.target}) {what}")


def _misplaced(node: torch.fx.Node, graph: torch.fx.Graph) -> str | None:
    for operand in node.all_input_nodes:
        if operand.graph is not graph:
            return f"reads node {operand.name} of another graph; take the nodes from the match"
        if operand._erased:
            return f"reads node {operand.name}, which is erased; replace its uses before erasing it"
        if not operand < node:
            return f"stands before node {operand.name}, which it reads; insert it behind its operands"
    for user in node.users:
        if user._erased:
            return f"has the user {user.name}, which is erased; erase nodes with graph.erase_node"
        if not node < user:
            return f"stands behind node {user.name}, which reads it; insert it before its users"
    return None


def _unfinished(node: torch.fx.Node) -> str | None:
    if node.op != "call_function":
        return None
    if "val" not in node.meta:
        return 'has no meta["val"] (missing_meta); set it, or later patterns cannot match there'
    if _is_dead(node):
        return "has no users; let it take the place of the chain's last node (replace_all_uses_with)"
    return None


def _is_dead(node: torch.fx.Node) -> bool:
    """Whether a node is a call without users and side effects; an unused getitem is no fault."""
    return (
        node.op == "call_function"
        and not node.users
        and node.target is not getitem
        and not node.is_impure(impure_random=False)
    )
