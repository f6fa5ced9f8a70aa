"""Changes on the graph's side of one site, on a copy of the capture: what another model would have there."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
from torch._guards import detect_fake_mode

from mismatches.dispatch import DoesNotApplyError
from mismatches.labels import Label
from mismatches.sites import Site

aten = torch.ops.aten
Edit = Callable[[torch.fx.Graph, Site, random.Random], Label]


def extra_user(graph: torch.fx.Graph, site: Site, chance: random.Random) -> Label:
    """An inner node is an output of the graph as well."""
    node = chance.choice(_inner(graph, site))
    with graph.inserting_after(node):
        user = _call(graph, aten.neg.default, (node,), node)
    output = graph.output_node()
    output.args = ((*output.args[0], user),)
    return Label("extra_user", frozenset(), frozenset({node.name, user.name}))


def graph_clone(graph: torch.fx.Graph, site: Site, chance: random.Random) -> Label:
    """A clone, neg or relu stands behind an inner node."""
    op = chance.choice([aten.clone.default, aten.neg.default, aten.relu.default])
    return _behind(graph, site, chance, "missing_node", [lambda node: (op, (node,), {})])


def graph_cast(graph: torch.fx.Graph, site: Site, chance: random.Random) -> Label:
    """An inner node is cast there and back."""

    def there(node: torch.fx.Node) -> Any:
        dtype = node.meta["val"].dtype
        return (
            aten._to_copy.default,
            (node,),
            {"dtype": torch.float64 if dtype == torch.float32 else torch.float32},
        )

    def back(node: torch.fx.Node) -> Any:
        return aten._to_copy.default, (node,), {"dtype": node.all_input_nodes[0].meta["val"].dtype}

    return _behind(graph, site, chance, "dtype_path", [there, back])


def graph_copy(graph: torch.fx.Graph, site: Site, chance: random.Random) -> Label:
    """A node with two users stands twice, once for each."""
    shared = [node for node in _inner(graph, site) if len(node.users) > 1]
    if not shared:
        raise DoesNotApplyError("no shared node")
    node = chance.choice(shared)
    with graph.inserting_after(node):
        twin = _call(graph, node.target, node.args, node, node.kwargs)
    user = chance.choice(list(node.users))
    user.replace_input_with(node, twin)
    return Label("shared_node", frozenset(), frozenset({node.name, twin.name}))


def mutation_between(graph: torch.fx.Graph, site: Site, chance: random.Random) -> Label:
    """Something else is written in place between two matched nodes."""
    matched = [node for node in graph.nodes if node.name in site.found.nodes]
    if len(matched) < 2:
        raise DoesNotApplyError("one node")
    place = chance.randrange(1, len(matched))
    before, after = matched[place - 1], matched[place]
    others = [
        node
        for node in graph.nodes
        if node.op == "placeholder"
        and node.name not in site.inputs
        and isinstance(node.meta.get("val"), torch.Tensor)
        if node.meta["val"].is_floating_point()
    ]
    if not others:
        raise DoesNotApplyError("nothing to write to")
    target = chance.choice(others)
    with graph.inserting_before(after):
        mutation = _call(graph, aten.mul_.Scalar, (target, 1.0), before)
    return Label("mutation_region", frozenset(), frozenset({mutation.name, before.name, after.name}))


def meta_gone(graph: torch.fx.Graph, site: Site, chance: random.Random) -> Label:
    """An operand of the site has no metadata."""
    nodes = {node.name: node for node in graph.nodes}
    node = nodes[chance.choice(site.inputs)]
    node.meta = {
        key: value for key, value in node.meta.items() if key not in ("val", "example_value", "tensor_meta")
    }
    return Label("missing_meta", frozenset(), frozenset({node.name, *(user.name for user in node.users)}))


EDITS: dict[str, tuple[str, Edit]] = {
    "extra_user": ("extra_user", extra_user),
    "graph_clone": ("missing_node", graph_clone),
    "graph_cast": ("dtype_path", graph_cast),
    "graph_copy": ("shared_node", graph_copy),
    "mutation_between": ("mutation_region", mutation_between),
    "meta_gone": ("missing_meta", meta_gone),
}


def _inner(graph: torch.fx.Graph, site: Site) -> list[torch.fx.Node]:
    found = [
        node
        for node in graph.nodes
        if node.name in site.found.nodes
        and node.name not in site.found.roots
        and isinstance(node.meta.get("val"), torch.Tensor)
        and node.meta["val"].is_floating_point()
    ]
    if not found:
        raise DoesNotApplyError("no inner node")
    return found


def _behind(graph: torch.fx.Graph, site: Site, chance: random.Random, kind: str, makers: list[Any]) -> Label:
    node = chance.choice(_inner(graph, site))
    users, last, made = list(node.users), node, []
    for maker in makers:
        op, args, kwargs = maker(last)
        with graph.inserting_after(last):
            last = _call(graph, op, args, node, kwargs)
        made.append(last.name)
    for user in users:
        user.replace_input_with(node, last)
    return Label(kind, frozenset(), frozenset(made))


def _call(
    graph: torch.fx.Graph, target: Any, args: Any, like: torch.fx.Node, kwargs: Any = None
) -> torch.fx.Node:
    """A new node with metadata of its own, at the place in the model that `like` has."""
    made = graph.call_function(target, tuple(args), dict(kwargs or {}))
    made.meta = {key: value for key, value in like.meta.items() if key in ("nn_module_stack", "stack_trace")}
    given, keywords = torch.fx.map_arg((made.args, made.kwargs), lambda node: node.meta["val"])
    mode = detect_fake_mode(list(given))
    with mode or contextlib.nullcontext(), torch.no_grad():
        made.meta["val"] = target(*given, **keywords) if target is not aten.mul_.Scalar else given[0]
    return made
