"""The comparable neighbourhood of a node, by which equal sites of a model's repeated blocks share one alignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.fx

from fusionkit.match.explanation.align import Alignment
from fusionkit.match.explanation.moves import Node, Step


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The nodes around an anchor in a fixed order; equal `key` means equal structure and literals."""

    key: tuple[Any, ...]
    nodes: tuple[Node, ...]


def neighbourhood(anchor: Node, ends: Sequence[Node], depth: int) -> Neighbourhood:
    """The anchor, `ends` (nodes that depend on it), and all their operands up to `depth` levels deep."""
    order: dict[Node, int] = {anchor: 0}
    for end in ends:
        order.setdefault(end, len(order))
    front = list(order)
    for _ in range(depth):
        below = [operand for node in front for operand in _operands(node) if operand not in order]
        for operand in below:
            order.setdefault(operand, len(order))
        front = list(dict.fromkeys(below))
    key = tuple(_call_form(node, order) for node in order)
    return Neighbourhood((len(ends), *key), tuple(order))


def _operands(node: Node) -> list[Node]:
    return node.all_input_nodes if node.op == "call_function" else []


def _call_form(node: Node, order: dict[Node, int]) -> tuple[Any, ...]:
    if node.op != "call_function":
        return (node.op,)

    def place(operand: Node) -> Any:
        return f"%{order.get(operand, -1)}"

    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), place)
    return (node.target, str(args), str(kwargs))


def moved(alignment: Alignment, old: Neighbourhood, new: Neighbourhood) -> Alignment | None:
    """The alignment of one place moved to an equal one; None if it has nodes outside the compared neighbourhood."""
    there: dict[Any, Any] = dict(zip(old.nodes, new.nodes, strict=True))
    reached: list[Any] = [g for _, g in alignment.roots]
    reached += [
        *alignment.pairs.values(),
        *alignment.bindings.values(),
        *(step.g for step in alignment.steps),
    ]
    if any(isinstance(node, Node) and node not in there for node in reached):
        return None
    return Alignment(
        alignment.cost,
        tuple((p, there[g]) for p, g in alignment.roots),
        {p: there[g] for p, g in alignment.pairs.items()},
        {p: there[g] if isinstance(g, Node) else g for p, g in alignment.bindings.items()},
        tuple(
            Step(
                step.kind, step.p, there.get(step.g), step.order, tuple(there.get(m, m) for m in step.members)
            )
            for step in alignment.steps
        ),
    )
