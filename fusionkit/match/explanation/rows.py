"""Pattern and graph side by side, row by row, for the aligner view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from fusionkit.capture.sources import source_line
from fusionkit.encoding import Result
from fusionkit.match.explanation.align import Alignment
from fusionkit.match.explanation.differences import Difference
from fusionkit.match.explanation.variants import Variant
from fusionkit.match.ops import packet


@dataclass(frozen=True, slots=True)
class AlignedRow(Result):
    """One row: a pattern node and its graph node, "" if that side has none.

    `state`: "same", "differs", "pattern only" or "graph only". `field`: the differing op or argument name;
    `expected` and `actual`: its two values; `types`: the cause types of this row.
    """

    state: str
    pattern_node: str
    pattern_call: str
    pattern_source: str
    graph_node: str
    graph_call: str
    graph_source: str
    types: tuple[str, ...] = ()
    field: str = ""
    expected: str = ""
    actual: str = ""


def aligned_rows(
    variant: Variant, alignment: Alignment, differences: Sequence[Difference]
) -> tuple[AlignedRow, ...]:
    """Arguments first, then the pattern's calls in order; a graph-only node comes before its user."""
    rows: list[AlignedRow] = []
    shown: set[torch.fx.Node] = set()
    extra = [step.g for step in alignment.steps if step.kind == "graph_only" and step.g is not None]
    for node in variant.graph.nodes:
        if node.op == "output":
            continue
        partner = alignment.pairs.get(node)
        bound = alignment.bindings.get(node)
        if partner is not None:
            for between in extra:
                if between in partner.all_input_nodes and between not in shown:
                    shown.add(between)
                    rows.append(_row(None, between, differences))
        rows.append(_row(node, partner if partner is not None else bound, differences))
    rows += [_row(None, between, differences) for between in extra if between not in shown]
    return tuple(rows)


def _row(p: torch.fx.Node | None, g: Any, differences: Sequence[Difference]) -> AlignedRow:
    own = [d for d in differences if (d.pattern_node is p if p is not None else d.graph_node is g)]
    graph_node = g if isinstance(g, torch.fx.Node) else None
    first = own[0] if own else None
    if p is None:
        state = "graph only"
    elif g is None:
        state = "pattern only"
    else:
        state = "differs" if own else "same"
    return AlignedRow(
        state,
        "" if p is None else p.name,
        "" if p is None else call_text(p),
        "" if p is None else source_line(p),
        "" if graph_node is None else graph_node.name,
        call_text(graph_node) if graph_node is not None else ("" if g is None else repr(g)),
        "" if graph_node is None else source_line(graph_node),
        tuple(dict.fromkeys(d.type for d in own)),
        "" if first is None else first.label or ("op" if first.type != "extra_user" else "users"),
        "" if first is None else first.expected,
        "" if first is None else first.actual,
    )


def call_text(node: torch.fx.Node) -> str:
    """The node as a call: `aten.mul.Tensor(x, rsqrt)`; an argument's name for a placeholder."""
    if node.op != "call_function":
        return str(node.target)
    arguments = [_text(value) for value in node.args]
    arguments += [f"{key}={_text(value)}" for key, value in node.kwargs.items()]
    target = node.target if isinstance(node.target, torch._ops.OpOverload) else packet(node)
    return f"{target}({', '.join(arguments)})"


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_text(item) for item in value)}]"
    return value.name if isinstance(value, torch.fx.Node) else str(value).removeprefix("torch.")
