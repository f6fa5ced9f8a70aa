"""A missed site in the graph as inline SVG: nodes in layers by depth, inputs, outputs and differences marked."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import torch.fx

from fusionkit.match.explanation.explain import SiteExplanation
from fusionkit.match.ops import describe
from fusionkit.templates import render
from fusionkit.widgets.charts import DRAWINGS, drawing_key
from fusionkit.widgets.layers import lay_out
from fusionkit.widgets.tables import NOTHING_TO_SHOW, nothing

DIFFERS = "\N{NOT EQUAL TO}"  # begins a note on a difference
MOST_NODES = 40  # more would be too small to read

_CHARACTER, _LINE = 6.75, 15  # pixels: width of a character of the monospaced font, height of a line
_LONGEST = 30  # characters of a line of a box
_TOP, _PADDING = 24, 8
_NARROWEST = 64.0


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """One box: its name, its call, its operands' names, and notes below.

    `role`: "call", "input" or "outside" (drawn dashed). `differs`: drawn with a heavy frame; `notes` have the reason.
    """

    name: str
    call: str
    operands: tuple[str, ...] = ()
    role: str = "call"
    notes: tuple[str, ...] = ()
    differs: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of the box, each cut to its width."""
        return tuple(_cut(line) for line in (self.name, self.call, *self.notes) if line)


def graph_svg(nodes: Sequence[DrawnNode], title: str, *, empty: str = NOTHING_TO_SHOW) -> str:
    """Draw `nodes`, given in topological order; operands that are not among them are left out.

    Returns SVG text to put into a page; without nodes, or with more than MOST_NODES, the title and why nothing is
    drawn. Everything is escaped, and the drawing is described in words for screen readers.
    """
    if not nodes:
        return nothing(empty, title)
    if len(nodes) > MOST_NODES:
        return nothing(f"{len(nodes)} nodes are too many to draw (at most {MOST_NODES})", title)
    sizes = {node.name: _size(node) for node in nodes}
    layout = lay_out({node.name: node.operands for node in nodes}, sizes)
    short_title = _cut(title, 90)
    width = max(layout.width, _width(short_title) + 2 * _PADDING)
    shift = (width - layout.width) / 2
    edges = [_edge([(x + shift, y + _TOP) for x, y in points]) for points in layout.lines.values()]
    corners = {name: (left + shift, top + _TOP) for name, (left, top) in layout.boxes.items()}
    boxes = [(node, _described(node), *corners[node.name], *sizes[node.name]) for node in nodes]
    text = "; ".join(map(_described, nodes))
    head = drawing_key(title, text), title, text, width, layout.height + _TOP, short_title
    return render(DRAWINGS, "graph", *head, edges, boxes, DIFFERS)


def site_nodes(site: SiteExplanation) -> list[DrawnNode]:
    """The nodes of a missed site in graph order, their operands as inputs, and the outside users that prevent a match.

    Empty for a site without an alignment. Causes are numbered as in the site's list.
    """
    if site.place is None:
        return []
    alignment = site.place.alignment
    inside = set(alignment.graph_nodes)
    inputs = {operand for node in inside for operand in node.all_input_nodes if operand not in inside}
    blocked = {cause.graph_node for cause in site.causes if cause.type == "extra_user"}
    users = {user for node in inside if node.name in blocked for user in node.users if user.op != "output"}
    arguments = {
        value: argument.name
        for argument, value in alignment.bindings.items()
        if isinstance(value, torch.fx.Node)
    }
    ends = {node for _, node in alignment.roots}
    drawn = inside | inputs | users
    nodes = []
    for node in sorted(drawn):
        role = "call" if node in inside else "input" if node in inputs else "outside"
        note = {
            "call": "output" if node in ends else "",
            "input": f"input {arguments.get(node, '')}".strip(),
            "outside": "user from outside",
        }[role]
        causes = () if role == "outside" else _cause_notes(node.name, site)
        call = _short_op(node) if role != "input" or node.op == "call_function" else ""
        operands = [operand for operand in node.all_input_nodes if operand in inside | inputs]
        names = () if role == "input" else tuple(operand.name for operand in operands)
        notes = ((note,) if note else ()) + causes
        nodes.append(DrawnNode(node.name, call, names, role, notes, differs=bool(causes)))
    return nodes


def _short_op(node: torch.fx.Node) -> str:
    """`mean.dim` for aten.mean.dim, `rsqrt` for aten.rsqrt.default; the dtype with a cast."""
    name, bracket, dtype = describe(node).partition("(")
    return f"{name.removeprefix('aten.').removesuffix('.default')}{bracket}{dtype}"


def _cause_notes(name: str, site: SiteExplanation) -> tuple[str, ...]:
    """The types of the site's causes at a node, with their numbers."""
    return tuple(
        f"{DIFFERS} {number} {cause.type}"
        for number, cause in enumerate(site.causes, start=1)
        if cause.graph_node == name
    )


def _cut(text: str, longest: int = _LONGEST) -> str:
    """The text, if too long without the beginning of a name or the end of a sentence."""
    clean = " ".join(text.split())
    if len(clean) <= longest:
        return clean
    dots = "\N{HORIZONTAL ELLIPSIS}"
    return clean[: longest - 1] + dots if " " in clean else dots + clean[-longest + 1 :]


def _width(text: str) -> float:
    return sum(_CHARACTER * (2 if unicodedata.east_asian_width(sign) in "WF" else 1) for sign in text)


def _size(node: DrawnNode) -> tuple[float, float]:
    lines = node.lines
    return max(_NARROWEST, *map(_width, lines)) + 2 * _PADDING, len(lines) * _LINE + _PADDING


def _described(node: DrawnNode) -> str:
    of = f" of {', '.join(node.operands)}" if node.operands else ""
    notes = f" ({', '.join(node.notes)})" if node.notes else ""
    return f"{node.name}: {node.call or node.role}{of}{notes}"


def _edge(points: Sequence[tuple[float, float]]) -> tuple[str, str]:
    """A smooth path downwards, and the head at its end."""
    (x, y), (end_x, end_y) = points[0], points[-1]
    path = [f"M{x:g} {y:g}"]
    for (x1, y1), (x2, y2) in itertools.pairwise(points):
        middle = (y1 + y2) / 2
        path.append(f"L{x2:g} {y2:g}" if x1 == x2 else f"C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {y2:g}")
    return "".join(path), f"M{end_x:g} {end_y:g}l-3.5 -7h7z"
