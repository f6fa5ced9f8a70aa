"""Which op decomposes into which others, by the decompositions of the installed torch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves, tree_map

from fusionkit.match.ops import CASTS, packet

# Errors of a decomposition on unsupported inputs.
_TRACE_ERRORS = (RuntimeError, TypeError, ValueError, NotImplementedError, AssertionError, LookupError)


class Laid(NamedTuple):
    """An op's decomposition aligned with nodes. `operands`: the op's operands and their nodes; `members`: the parts."""

    operands: list[tuple[torch.fx.Node, torch.fx.Node]]
    members: tuple[torch.fx.Node, ...]


def is_made_of(whole: Sequence[torch.fx.Node], parts: Sequence[torch.fx.Node]) -> bool:
    """Whether the only op of `whole` decomposes into the ops of `parts` (casts aside)."""
    wanted = {packet(node) for node in parts if packet(node) not in CASTS}
    calls = [node for node in whole if packet(node) not in CASTS]
    if len(calls) != 1 or not wanted or wanted == {packet(calls[0])}:
        return False
    return any(wanted <= _ops(graph) for graph in parts_of(calls[0]))


def is_same_in_prims(one: torch.fx.Node, other: torch.fx.Node) -> bool:
    """Whether one op is the prims form of the other."""
    names = packet(one), packet(other)
    return names[0] != names[1] and _name(one) == _name(other)


def wholes_of(
    parts: Sequence[torch.fx.Node],
    graph: Sequence[torch.fx.Node],
    within: Sequence[torch.fx.Node] | None = None,
) -> list[str]:
    """Ops of `graph` that decompose into an op which `parts` has and `graph` lacks.

    `within`: nodes that have every op of such a decomposition, casts aside.
    """
    there = {_name(node): node for node in reversed(graph)}
    lacking = {_name(node) for node in parts} - set(there)
    if not lacking:
        return []
    most = None if within is None else {"cast", *map(_name, within)}
    made = {packet(node): [_ops(form) for form in parts_of(node)] for node in there.values()}
    return [
        whole
        for whole, forms in made.items()
        if any(lacking & ops and (most is None or ops <= most) for ops in forms)
    ]


def part_names(node: torch.fx.Node) -> set[str]:
    """The ops of all decompositions of a call."""
    return set().union(*map(_ops, parts_of(node)))


def lay_parts(whole: torch.fx.Node, end: torch.fx.Node) -> Laid | None:
    """A decomposition of `whole` aligned with the graph so that its last op is `end`; None if none fits."""
    for graph in parts_of(whole):
        root = next(iter(graph.output_node().all_input_nodes), None)
        if root is None or root.op != "call_function":
            continue
        for over_casts in (False, True):
            partners: dict[torch.fx.Node, torch.fx.Node] = {}
            passed: list[torch.fx.Node] = []
            if _lay(root, end, partners, passed if over_casts else None):
                places = zip(whole.all_input_nodes, graph.find_nodes(op="placeholder"), strict=False)
                operands = [(operand, partners[place]) for operand, place in places if place in partners]
                parts = (node for part, node in partners.items() if part.op == "call_function")
                return Laid(operands, (*parts, *dict.fromkeys(passed)))
    return None


def _lay(
    part: torch.fx.Node,
    node: torch.fx.Node,
    partners: dict[torch.fx.Node, torch.fx.Node],
    passed: list[torch.fx.Node] | None,
) -> bool:
    """Align `part` and its operands with `node`; with `passed`, skip and collect casts that the decomposition lacks."""
    while passed is not None and _name(node) == "cast" and _name(part) != "cast":
        passed.append(node)
        node = node.all_input_nodes[0]
    if part in partners or part.op == "placeholder":
        return partners.setdefault(part, node) is node
    if node.op != "call_function" or _name(part) != _name(node):
        return False
    partners[part] = node
    inputs = part.all_input_nodes, node.all_input_nodes
    return len(inputs[0]) == len(inputs[1]) and all(
        _lay(a, b, partners, passed) for a, b in zip(*inputs, strict=True)
    )


def parts_of(node: torch.fx.Node) -> tuple[torch.fx.Graph, ...]:
    """Each of torch's decompositions of the node's call, as a graph; none for most ops."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return ()
    key = (str(node.target), _literals(node), tuple(_form(operand) for operand in node.all_input_nodes))
    if key not in _known():
        made = [_decomposed(node, table) for table in _tables(node.target)]
        _known()[key] = tuple(graph for graph in made if graph is not None)
    return _known()[key]


@functools.cache
def _known() -> dict[Any, tuple[torch.fx.Graph, ...]]:
    """Cache: call -> its decompositions, which do not change while a process runs."""
    return {}


def _literals(node: torch.fx.Node) -> str:
    return str(torch.fx.map_arg((node.args, node.kwargs), lambda _: "%"))


def _form(node: torch.fx.Node) -> tuple[Any, ...]:
    value = node.meta.get("val")
    return (value.dim(), value.dtype) if isinstance(value, torch.Tensor) else (type(value),)


def _tables(target: torch._ops.OpOverload) -> list[dict[Any, Callable[..., Any]]]:
    """One table for each decomposition of the op; the empty one for ops that the dispatcher decomposes."""
    from torch._decomp import decomposition_table, get_decompositions
    from torch._inductor.decomposition import select_decomp_table

    tables: list[dict[Any, Callable[..., Any]]] = [{}]
    for table in (select_decomp_table(), decomposition_table, get_decompositions([target])):
        if target in table and table[target] not in [next(iter(known.values())) for known in tables[1:]]:
            tables.append({target: table[target]})
    return tables


def _decomposed(node: torch.fx.Node, table: dict[Any, Callable[..., Any]]) -> torch.fx.Graph | None:
    target: Any = node.target
    operands = node.all_input_nodes
    values = [operand.meta.get("val") for operand in operands]
    if not all(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(values)):
        return None
    with FakeTensorMode(allow_non_fake_inputs=True):
        tensors = tree_map(_fresh, values)
        place = {operand: index for index, operand in enumerate(operands)}

        def call(*given: Any) -> Any:
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: given[place[n]])
            result = target(*args, **kwargs)
            return result[0] if isinstance(result, tuple | list) else result

        try:
            with torch.no_grad():
                graph = make_fx(call, table, tracing_mode="real")(*tensors).graph
        except _TRACE_ERRORS:
            return None
    graph.eliminate_dead_code()
    return None if _ops(graph) <= {_name(node), "operator.getitem"} else graph


def _ops(graph: torch.fx.Graph) -> set[str]:
    return {_name(node) for node in graph.nodes if node.op == "call_function"}


def _name(node: torch.fx.Node) -> str:
    """The op packet, prims spelled as aten, and one name for all casts."""
    name = packet(node)
    return "cast" if name in CASTS else name.replace("prims.", "aten.")


def _fresh(tensor: torch.Tensor) -> torch.Tensor:
    """An empty tensor of this dtype and shape, 2 for each symbolic size."""
    return torch.empty([size if type(size) is int else 2 for size in tensor.shape], dtype=tensor.dtype)
