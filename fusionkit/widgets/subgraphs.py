"""The part of the model's graph that a missed site takes, as boxes to draw."""

from __future__ import annotations

from typing import Any

import torch.fx

from fusionkit.match.explanation.explain import SiteExplanation
from fusionkit.match.ops import describe
from fusionkit.widgets.drawing import DIFFERS, DrawnNode


def site_nodes(site: SiteExplanation) -> list[DrawnNode]:
    """The site's nodes in the graph's order, their operands as inputs, and users from outside that stand in the way.

    Empty where nothing of the pattern was laid over the site. Causes are numbered as in the site's list.
    """
    if site.place is None:
        return []
    alignment = site.place.alignment
    inside = set(alignment.graph_nodes)
    inputs = {operand for node in inside for operand in node.all_input_nodes if operand not in inside}
    blocked = {cause.graph_node for cause in site.causes if cause.type == "extra_user"}
    users = {
        user
        for node in inside
        if node.name in blocked
        for user in node.users
        if user not in inside | inputs and user.op != "output"
    }
    bound: dict[Any, str] = {value: argument.name for argument, value in alignment.bindings.items()
                             if isinstance(value, torch.fx.Node)}  # fmt: skip
    ends = {node for _, node in alignment.roots}
    found = []
    for node in sorted(inside | inputs | users):
        if node in inside:
            found.append(_call(node, site, "output" if node in ends else ""))
        elif node in inputs:
            found.append(_input(node, bound.get(node, ""), site))
        else:
            operands = tuple(o.name for o in node.all_input_nodes if o in inside | inputs)
            found.append(DrawnNode(node.name, short_op(node), operands, "outside", ("user from outside",)))
    return found


def short_op(node: torch.fx.Node) -> str:
    """`mean.dim` for aten.mean.dim, `rsqrt` for aten.rsqrt.default; the dtype with a cast."""
    name, bracket, dtype = describe(node).partition("(")
    return f"{name.removeprefix('aten.').removesuffix('.default')}{bracket}{dtype}"


def cause_notes(name: str, site: SiteExplanation) -> tuple[str, ...]:
    """What the site's causes say of a node, with their numbers."""
    return tuple(
        f"{DIFFERS} {number} {cause.type}"
        for number, cause in enumerate(site.causes, start=1)
        if cause.graph_node == name
    )


def _call(node: torch.fx.Node, site: SiteExplanation, role: str) -> DrawnNode:
    causes = cause_notes(node.name, site)
    operands = tuple(operand.name for operand in node.all_input_nodes)
    notes = ((role,) if role else ()) + causes
    return DrawnNode(node.name, short_op(node), operands, "call", notes, differs=bool(causes))


def _input(node: torch.fx.Node, argument: str, site: SiteExplanation) -> DrawnNode:
    causes = cause_notes(node.name, site)
    role = f"input {argument}".strip()
    call = short_op(node) if node.op == "call_function" else ""
    return DrawnNode(node.name, call, (), "input", (role, *causes), differs=bool(causes))
