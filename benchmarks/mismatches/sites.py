"""Where torch's own matcher finds a pattern, and which graph node stands for which op of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch._inductor.pattern_matcher import Match, PatternMatcherPass
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from fusionkit.capture.graphs import CapturedGraph, copy_graph_module
from fusionkit.capture.sources import module_path
from fusionkit.passes.registering import PatternClass, register_pattern
from fusionkit.passes.tracing import make_tracer
from mismatches.single import arguments_of


@dataclass(frozen=True, slots=True)
class Found:
    """One match of torch's: the nodes of the outputs, and all matched nodes, by name.

    `binds_nodes`: every tensor argument of the pattern is a node of the graph, and none a number.
    """

    graph: int
    anchor: str
    nodes: tuple[str, ...]
    roots: tuple[str, ...]
    binds_nodes: bool = True


@dataclass(frozen=True, slots=True)
class Site:
    """One match of an unchanged pattern: op of the pattern -> graph node, argument -> graph node."""

    found: Found
    module: str
    modules: tuple[str, ...]
    of_op: dict[int, str]
    inputs: tuple[str, ...]


def clean_copy(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A copy without what an earlier run of the matcher wrote into the metadata."""
    made = copy_graph_module(module)
    for node in made.graph.nodes:
        node.meta.pop("mutation_region_id", None)
    return made


def torch_matches(classes: Sequence[PatternClass], graphs: Sequence[CapturedGraph]) -> list[Found]:
    """Every match of torch's, both stages; nothing is replaced. What registering raises is passed on."""
    found: list[Found] = []
    current = [0]

    def keep(pattern: PatternClass, match: Match) -> bool:
        roots = tuple(node.name for node in match.output_nodes() if node is not None)
        scalars = pattern.scalars()
        bound = [value for name, value in match.kwargs.items() if name not in scalars]
        whole = all(isinstance(value, torch.fx.Node) for value in bound)
        found.append(Found(current[0], roots[0], tuple(node.name for node in match.nodes), roots, whole))
        return False

    matcher = PatternMatcherPass(pass_name="mismatches")
    for pattern in classes:
        register_pattern(pattern, matcher, make_tracer({}), keep, "cpu")
    for graph in graphs:
        current[0] = graph.key.index
        matcher.apply(clean_copy(graph.module))
    return found


@dataclass(frozen=True, slots=True)
class Traced:
    """A pattern's trace, before dead code goes; `positions` tells of each node by which op it was made."""

    graph: torch.fx.Graph
    positions: dict[str, int]
    changed: frozenset[str]

    def at(self, position: int) -> list[torch.fx.Node]:
        """The live nodes that the op at `position` made."""
        return [n for n in self.graph.nodes if self.positions.get(n.name) == position]


def traced(pattern: PatternClass, tensors: Sequence[torch.Tensor] | None = None) -> Traced:
    """Trace a class that records its events (see `classes.mutated`), on its example inputs or on others."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        given = tensors or [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype) for t in pattern.inputs()]
        with torch.no_grad():
            module = make_fx(pattern.pattern, {}, tracing_mode="real")(*arguments_of(pattern, list(given)))
    events = pattern.events  # type: ignore[attr-defined]
    positions, changed, count = {}, set(), -1
    import operator

    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is operator.getitem:
            source = node.args[0].name
            positions[node.name] = positions[source]
            changed |= {node.name} if source in changed else set()
            continue
        count += 1
        if count >= len(events) or events[count].func is not node.target:
            raise ValueError(
                f"{pattern.name()}: node {node.name} is not the op that was called there: {events}"
            )
        positions[node.name] = events[count].position
        changed |= {node.name} if events[count].changed else set()
    module.graph.eliminate_dead_code()
    return Traced(module.graph, positions, frozenset(changed))


def site_of(trace: Traced, found: Found, graph: CapturedGraph, module: str) -> Site:
    """Walk an unchanged pattern's trace and the graph in step, from the outputs back to the inputs.

    Raises ValueError where they differ, which a match rules out.
    """
    nodes = {node.name: node for node in graph.module.graph.nodes}
    pairs: dict[torch.fx.Node, torch.fx.Node] = {}
    outputs = torch.utils._pytree.tree_leaves(trace.graph.output_node().args)
    todo: list[tuple[Any, Any]] = [
        (o, nodes[r]) for o, r in zip([o for o in outputs if o is not None], found.roots, strict=True)
    ]
    while todo:
        own, theirs = todo.pop()
        if not isinstance(own, torch.fx.Node) or own in pairs:
            continue
        if not isinstance(theirs, torch.fx.Node) or (
            own.op == "call_function" and own.target is not theirs.target
        ):
            raise ValueError(f"{own} does not stand for {theirs}")
        pairs[own] = theirs
        if own.op == "call_function":
            todo += zip(_operands(own), _operands(theirs), strict=False)
    of_op: dict[int, str] = {}
    for own, theirs in pairs.items():
        if own.op == "call_function" and str(own.target) != "<built-in function getitem>":
            of_op[trace.positions[own.name]] = theirs.name
    inputs = tuple(pairs[n].name for n in trace.graph.nodes if n.op == "placeholder" and n in pairs)
    modules = tuple(dict.fromkeys(module_path(nodes[name]) for name in found.nodes))
    return Site(found, module, modules, of_op, inputs)


def _operands(node: torch.fx.Node) -> list[Any]:
    return [item for value in node.args for item in (value if isinstance(value, list | tuple) else [value])]
