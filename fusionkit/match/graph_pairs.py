"""Pairing the graphs of two captures, and comparing each pair node by node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from fusionkit.capture.graphs import CapturedGraph
from fusionkit.capture.node_records import record_node
from fusionkit.store import to_json


@dataclass(frozen=True, slots=True)
class GraphPair:
    """The n-th graph of one kind on each side.

    `a` and `b`: numbers of nodes, None if a side has no such graph. `difference`: the first node that differs, for
    graphs that call the same ops in the same order; "" for others.
    """

    kind: str
    number: int
    a: int | None
    b: int | None
    same: bool
    difference: str = ""


def pair_graphs(a: Sequence[CapturedGraph], b: Sequence[CapturedGraph]) -> tuple[GraphPair, ...]:
    """Pair the graphs by kind, in order."""
    kinds = dict.fromkeys(graph.key.kind for graph in (*a, *b))
    return tuple(
        _pair(kind, number, left, right)
        for kind in kinds
        for number, (left, right) in enumerate(zip_longest(_of_kind(a, kind), _of_kind(b, kind)))
    )


def _of_kind(graphs: Sequence[CapturedGraph], kind: str) -> list[CapturedGraph]:
    return [graph for graph in graphs if graph.key.kind == kind]


def _pair(kind: str, number: int, a: CapturedGraph | None, b: CapturedGraph | None) -> GraphPair:
    if a is None or b is None:
        only_a, only_b = (None if graph is None else len(graph.nodes) for graph in (a, b))
        return GraphPair(kind, number, only_a, only_b, same=False)
    left, right = _plain(a), _plain(b)
    difference = ""
    if [node["op"] for node in left] == [node["op"] for node in right]:
        pairs = zip(a.nodes, left, right, strict=True)
        difference = next((_field_text(node.name, old, new) for node, old, new in pairs if old != new), "")
    return GraphPair(kind, number, len(left), len(right), left == right, difference)


def _plain(graph: CapturedGraph) -> list[dict[str, Any]]:
    """Each node's op, arguments and metadata, with operand nodes as their position in the graph."""
    places = {node.name: place for place, node in enumerate(graph.nodes)}
    plain = []
    for node in graph.nodes:
        record = record_node(node)
        op = record.target if record.op == "call_function" else record.op
        arguments = _placed([record.args, record.kwargs], places)
        plain.append({"op": op, "arguments": arguments, "value": record.meta})
    return plain


def _placed(value: Any, places: dict[str, int]) -> Any:
    if isinstance(value, list):
        return [_placed(item, places) for item in value]
    if isinstance(value, dict):
        if list(value) == ["node"] and value["node"] in places:
            return {"node": places[value["node"]]}
        return {key: _placed(item, places) for key, item in value.items()}
    return value


def _field_text(name: str, a: dict[str, Any], b: dict[str, Any]) -> str:
    """The first field that differs, with both values."""
    field = next(key for key in ("arguments", "value") if a[key] != b[key])
    left, right = (to_json(side[field], indent=None) for side in (a, b))
    return f"{name} ({a['op']}): {field} {left} in A, {right} in B"
