"""Pattern and graph side by side: rows for the aligner view, and each difference as an edit of the pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch.fx

from fusionkit.capture.sources import source_line
from fusionkit.encoding import Result
from fusionkit.match.explanation.align import Alignment
from fusionkit.match.explanation.calls import ANYTHING
from fusionkit.match.explanation.differences import Difference
from fusionkit.match.explanation.variants import Variant
from fusionkit.match.ops import op_text


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
    extra = [step.g for step in alignment.steps if step.kind == "graph_only" and step.g is not None]
    for node in variant.graph.nodes:
        if node.op == "output":
            continue
        partner = alignment.pairs.get(node)
        before = [g for g in dict.fromkeys(extra) if partner is not None and g in partner.all_input_nodes]
        rows += [_row(None, between, differences) for between in before]
        extra = [g for g in extra if g not in before]
        rows.append(_row(node, alignment.bindings.get(node) if partner is None else partner, differences))
    rows += [_row(None, between, differences) for between in extra]
    return tuple(rows)


def _row(p: torch.fx.Node | None, g: Any, differences: Sequence[Difference]) -> AlignedRow:
    own = [d for d in differences if (d.pattern_node is p if p is not None else d.graph_node is g)]
    node = g if isinstance(g, torch.fx.Node) else None
    first = own[0] if own else None
    if p is None:
        state = "graph only"
    elif g is None:
        state = "pattern only"
    else:
        state = "differs" if own else "same"
    literal = "" if g is None else repr(g)
    return AlignedRow(
        state,
        *(("", "", "") if p is None else (p.name, call_text(p), source_line(p))),
        *(("", literal, "") if node is None else (node.name, call_text(node), source_line(node))),
        tuple(dict.fromkeys(d.type for d in own)),
        "" if first is None else first.label or ("op" if first.type != "extra_user" else "users"),
        *(("", "") if first is None else (first.expected, first.actual)),
    )


_NO_EDIT = (
    "extra_user", "shared_node", "mutation_region", "missing_meta", "retrace_error", "extra_check",
    "unused_argument", "parameter_source", "cycle", "consumed_earlier", "unsupported_dtype", "graph_break",
)  # fmt: skip


def edit_of(difference: Difference, alignment: Alignment) -> str | None:
    """Lines to remove (`- `) and to add (`+ `), in straight-line form; None if no one-line edit exists."""
    if difference.type in _NO_EDIT:
        return None
    p, g = difference.pattern_node, difference.graph_node
    known = alignment.pairs.get(p) if p is not None else None
    names = {g: p.name for p, g in alignment.bindings.items() if isinstance(g, torch.fx.Node)}
    names |= {g: p.name for p, g in alignment.pairs.items()}
    lines = []
    only_graph = {step.g for step in alignment.steps if step.kind == "graph_only"}
    only_pattern = {step.p for step in alignment.steps if step.kind == "pattern_only"}
    if p is not None and p.op == "call_function" and g not in only_graph:
        lines.append(f"- {p.name} = {call_text(p).replace(repr(ANYTHING), difference.expected)}")
    if g is not None and g.op == "call_function" and (g in only_graph or p not in only_pattern):
        own = names.get(g, g.name) if known is g or g in only_graph else g.name
        lines.append(f"+ {own} = {call_text(g, names)}")
    return "\n".join(lines) or None


def call_text(node: torch.fx.Node, names: Mapping[torch.fx.Node, str] | None = None) -> str:
    """The node as a call: `aten.mul.Tensor(x, rsqrt)`; an argument's name for a placeholder.

    `names`: operands that are written by another name than their own.
    """
    if node.op != "call_function":
        return str(node.target)

    def text(value: Any) -> str:
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(text, value))}]"
        if isinstance(value, torch.fx.Node):
            return (names or {}).get(value, value.name)
        return str(value).removeprefix("torch.")

    arguments = [*map(text, node.args), *(f"{key}={text(value)}" for key, value in node.kwargs.items())]
    return f"{op_text(node)}({', '.join(arguments)})"
