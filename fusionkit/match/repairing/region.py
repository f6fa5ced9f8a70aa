"""A region of a captured graph: the nodes between inputs and outputs, and other regions of the same form."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_flatten

from fusionkit.errors import MisuseError
from fusionkit.match.ops import is_cast, operands
from fusionkit.passes.admission import cast_dtype

Node = torch.fx.Node
Slot = tuple[int, str]  # a node's index in its region, and the name of an argument of its op
_LIMIT = 400
_LOW = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Region:
    """`inputs`: the live-in nodes, in argument order; `nodes`: operands before users; `outputs`: some of `nodes`."""

    inputs: tuple[Node, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Node, ...]

    @property
    def leaks(self) -> tuple[Node, ...]:
        """Nodes that are no output but are used outside: torch's matcher refuses a region with such a node."""
        inside = set(self.nodes)
        return tuple(n for n in self.nodes if n not in self.outputs and not inside.issuperset(n.users))

    def slots(self) -> Iterator[tuple[Slot, Any]]:
        """Every argument of every node, with its value."""
        for index, node in enumerate(self.nodes):
            yield from (((index, label), value) for label, value in operands(node).items())

    def argument(self, slot: Slot) -> Any:
        """The value of one argument."""
        return operands(self.nodes[slot[0]])[slot[1]]

    @property
    def input_values(self) -> list[torch.Tensor]:
        """The fake tensors of the inputs."""
        return [self.value(node) for node in self.inputs]

    def value(self, node: Node) -> torch.Tensor:
        """The fake tensor of an input or node. Raises MisuseError if it has none."""
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            raise MisuseError(
                f"node '{node.name}' holds no tensor (missing_meta); a pattern cannot take it as an argument"
            )
        return value


def enclose(inputs: Sequence[Node], outputs: Sequence[Node], *, limit: int = _LIMIT) -> Region:
    """The region from `inputs` to `outputs`: every node that the outputs depend on, up to the inputs.

    Raises MisuseError if another live-in is needed, or if no output depends on an input.
    """
    stops, seen, order = set(inputs), set[Node](), list[Node]()

    def visit(node: Node) -> None:
        if node in seen:
            return
        seen.add(node)
        if node in stops or is_number(node):
            return
        if node.op != "call_function":
            raise MisuseError(
                f"{node.op} '{node.name}' is reached from the outputs and is no input; add it to them"
            )
        if len(seen) > limit:
            raise MisuseError(f"more than {limit} nodes lie between the inputs and '{outputs[0].name}'")
        for operand in node.all_input_nodes:
            visit(operand)
        order.append(node)

    for output in outputs:
        visit(output)
    for node in inputs:
        if node not in seen:
            raise MisuseError(f"input '{node.name}' does not reach output '{outputs[0].name}'")
    return Region(tuple(inputs), tuple(order), tuple(outputs))


def region_of_nodes(chosen: Iterable[Node]) -> Region:
    """The region of exactly these nodes, with the casts of its inputs and output that belong to it.

    Raises MisuseError for a node that is no call, or if a path between the nodes leads through another node.
    """
    inside = set(chosen)
    for node in inside:
        if node.op != "call_function":
            raise MisuseError(f"node '{node.name}' is a {node.op}; choose nodes that call an op")
    if not inside:
        raise MisuseError("no node was chosen; name at least one")
    inside |= _edge_casts(inside)
    ordered = [node for node in next(iter(inside)).graph.nodes if node in inside]
    outputs = [n for n in ordered if not n.users or any(user not in inside for user in n.users)]
    inputs = dict.fromkeys(
        o for node in ordered for o in node.all_input_nodes if o not in inside and not is_number(o)
    )
    between = _between(outputs, inputs, inside)
    if between is not None:
        raise MisuseError(
            f"node '{between.name}' lies between the chosen nodes (missing from the choice); choose it as well"
        )
    return enclose(list(inputs), outputs)


def with_edge_casts(region: Region) -> Iterator[Region]:
    """The region with its output's cast to half precision, with its inputs' casts to float32, and with both.

    Only casts that belong to the region alone: those of `region_of_nodes`.
    """
    inside = set(region.nodes)
    casts = _edge_casts(inside)
    entries = [node for node in region.inputs if node in casts]
    ends = [node for node in casts if node not in region.inputs] if len(region.outputs) == 1 else []
    opened = tuple(node.all_input_nodes[0] if node in entries else node for node in region.inputs)
    if len(set(opened)) < len(opened):
        entries = []
    for first, last in ((entries, []), ([], ends), (entries, ends)):
        if first or last:
            inputs = opened if first else region.inputs
            yield Region(inputs, (*first, *region.nodes, *last), tuple(last) or region.outputs)


def region_like(region: Region, anchor: Node) -> Region | None:
    """The region of the same form with `anchor` as first output; None if the graph differs there.

    Same form: the same ops in the same dataflow with the same dtypes; numbers and devices may differ.
    """
    known: dict[Node, Node] = {}
    if not _stands_for(region, region.outputs[0], anchor, known):
        return None
    for output in region.outputs[1:]:
        near = dict.fromkeys(user for node in list(known.values()) for user in node.users)
        for other in near:
            trial = dict(known)
            if _stands_for(region, output, other, trial) and _apart(region, trial):
                known = trial
                break
        else:
            return None
    if not known.keys() >= {*region.inputs, *region.nodes} or not _apart(region, known):
        return None
    parts = (region.inputs, region.nodes, region.outputs)
    return Region(*(tuple(known[node] for node in nodes) for nodes in parts))


def regions_like(region: Region, graphs: Iterable[torch.fx.Graph]) -> list[Region]:
    """Every region of the same form in these graphs, `region` itself included, in graph order."""
    target = region.outputs[0].target
    ends = (node for graph in graphs for node in graph.find_nodes(op="call_function", target=target))
    return [item for node in ends if (item := region_like(region, node)) is not None]


def form_of(region: Region) -> Any:
    """A hashable key that is equal for regions of one form."""
    number = {node: f"in{i}" for i, node in enumerate(region.inputs)}
    number |= {node: f"n{i}" for i, node in enumerate(region.nodes)}
    rows = []
    for node in region.nodes:
        leaves, spec = tree_flatten((list(node.args), node.kwargs))
        if node.target is operator.getitem:
            leaves[1] = str(leaves[1])  # the index of the output is part of the form
        operand_forms = tuple(number[x] if isinstance(x, Node) and x in number else _kind(x) for x in leaves)
        rows.append((str(node.target), operand_forms, str(spec)))
    return (tuple(rows), tuple(number[node] for node in region.outputs))


def _stands_for(region: Region, ours: Node, theirs: Node, known: dict[Node, Node]) -> bool:
    if ours in known:
        return known[ours] is theirs
    known[ours] = theirs
    if ours in region.inputs:
        return True
    if theirs.op != "call_function" or ours.target != theirs.target:
        return False
    if ours.target is operator.getitem and ours.args[1] != theirs.args[1]:
        return False
    mine, my_form = tree_flatten((list(ours.args), dict(sorted(ours.kwargs.items()))))
    other, other_form = tree_flatten((list(theirs.args), dict(sorted(theirs.kwargs.items()))))
    if my_form != other_form:
        return False
    for a, b in zip(mine, other, strict=True):
        inner = isinstance(a, Node) and not is_number(a)
        if inner != (isinstance(b, Node) and not is_number(b)):
            return False
        if not (_stands_for(region, a, b, known) if inner else _kind(a) == _kind(b)):
            return False
    return True


def _apart(region: Region, known: Mapping[Node, Node]) -> bool:
    """Whether no two nodes of the region have one partner."""
    partners = [known[node] for node in region.nodes if node in known]
    return len(set(partners)) == len(partners)


def is_number(node: Node) -> bool:
    """Whether a node is a symbolic size rather than a tensor."""
    return isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool)


def _kind(value: Any) -> Any:
    """The part of a literal that is equal within a form: numbers and devices by type, anything else by value."""
    if isinstance(value, bool | str | None):
        return ("exactly", value)
    if isinstance(value, int | float | torch.SymInt | torch.SymFloat | Node):
        return "number"
    if isinstance(value, torch.device):
        return "device"
    return ("exactly", str(value))


def _is_entry_cast(node: Node, inside: set[Node]) -> bool:
    """Whether a node is the site's own cast of an input to float32, used inside only: its operand is the true input."""
    source = node.all_input_nodes[0].meta.get("val") if node.all_input_nodes else None
    return (
        is_cast(node)
        and cast_dtype(node) is torch.float32
        and isinstance(source, torch.Tensor)
        and source.dtype in _LOW
        and all(user in inside for user in node.users)
    )


def _edge_casts(inside: set[Node]) -> set[Node]:
    """The site's casts of its inputs to float32, and the cast of a single output to half precision."""
    inputs = {operand for node in inside for operand in node.all_input_nodes} - inside
    casts = {node for node in inputs if _is_entry_cast(node, inside)}
    ends = [node for node in inside if any(user not in inside for user in node.users)]
    users = list(ends[0].users) if len(ends) == 1 else []
    if len(users) == 1 and users[0] not in inside and is_cast(users[0]) and cast_dtype(users[0]) in _LOW:
        casts.add(users[0])
    return casts


def _between(outputs: Sequence[Node], inputs: Mapping[Node, Any], inside: set[Node]) -> Node | None:
    """An input of the region that depends on an output through outside nodes, or None."""
    order = {node: index for index, node in enumerate(outputs[0].graph.nodes)}
    last = max(order[node] for node in inputs) if inputs else -1
    queue = [user for node in outputs for user in node.users if user not in inside]
    seen: set[Node] = set()
    while queue:
        node = queue.pop()
        if node in seen or order.get(node, last + 1) > last:
            continue
        seen.add(node)
        if node in inputs:
            return node
        queue.extend(user for user in node.users if user not in inside)
    return None
