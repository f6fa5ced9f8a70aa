"""A difference as an edit of the pattern: its call, and the graph's call in the pattern's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.fx

from fusionkit.match.explanation.align import Alignment
from fusionkit.match.explanation.differences import Difference
from fusionkit.match.explanation.rows import call_text

_NO_EDIT = (
    "extra_user", "shared_node", "mutation_region", "missing_meta", "retrace_error", "extra_check",
    "unused_argument", "parameter_source",
)  # fmt: skip


def edit_of(difference: Difference, alignment: Alignment) -> str | None:
    """Lines to remove (`- `) and to add (`+ `), in straight-line form; None if no one-line edit exists."""
    if difference.type in _NO_EDIT:
        return None
    p, g = difference.pattern_node, difference.graph_node
    known = alignment.pairs.get(p) if p is not None else None
    names = _names(alignment)
    lines = []
    only_graph = {step.g for step in alignment.steps if step.kind == "graph_only"}
    only_pattern = {step.p for step in alignment.steps if step.kind == "pattern_only"}
    if p is not None and p.op == "call_function" and g not in only_graph:
        lines.append(f"- {p.name} = {call_text(p)}")
    if g is not None and g.op == "call_function" and (g in only_graph or p not in only_pattern):
        own = names.get(g, g.name) if known is g or g in only_graph else g.name
        lines.append(f"+ {own} = {_called(g, names)}")
    return "\n".join(lines) or None


def _names(alignment: Alignment) -> dict[torch.fx.Node, str]:
    """Graph node -> its name in the pattern."""
    names = {bound: p.name for p, bound in alignment.bindings.items() if isinstance(bound, torch.fx.Node)}
    return names | {g: p.name for p, g in alignment.pairs.items()}


def _called(node: torch.fx.Node, names: Mapping[torch.fx.Node, str]) -> str:
    def text(value: Any) -> str:
        if isinstance(value, torch.fx.Node):
            return names.get(value, value.name)
        if isinstance(value, list | tuple):
            return f"[{', '.join(text(item) for item in value)}]"
        return str(value).removeprefix("torch.")

    arguments = [text(value) for value in node.args]
    arguments += [f"{key}={text(value)}" for key, value in node.kwargs.items()]
    target = (
        node.target if isinstance(node.target, torch._ops.OpOverload) else call_text(node).partition("(")[0]
    )
    return f"{target}({', '.join(arguments)})"
