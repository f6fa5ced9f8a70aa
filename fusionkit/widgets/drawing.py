"""A small graph as inline SVG: nodes in layers by depth, inputs and outputs named, what differs marked in words."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from fusionkit.templates import render
from fusionkit.widgets.charts import DRAWINGS, drawing_key
from fusionkit.widgets.layers import Spacing, lay_out
from fusionkit.widgets.tables import NOTHING_TO_SHOW, nothing

DIFFERS = "\N{NOT EQUAL TO}"  # begins a note that tells of a difference
MOST_NODES = 40  # more would be too small to read

_CHARACTER, _LINE = 6.75, 15  # pixels: width of a character of the monospaced font, height of a line
_LONGEST = 30  # characters of a line of a box
_TOP, _PADDING = 24, 8
_NARROWEST = 64.0


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """One box: its name, what it calls, its operands' names, and what is said of it below.

    `role`: "call", "input" or "outside" (drawn dashed). `differs`: marked by a heavy frame; `notes` say why.
    """

    name: str
    call: str
    operands: tuple[str, ...] = ()
    role: str = "call"
    notes: tuple[str, ...] = ()
    differs: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of the box, each cut to what fits."""
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
    layout = lay_out({node.name: node.operands for node in nodes}, sizes, Spacing())
    short = _cut(title, 90)
    width = max(layout.width, _width(short) + 2 * _PADDING)
    shift = (width - layout.width) / 2
    edges = [_edge([(x + shift, y + _TOP) for x, y in points]) for points in layout.lines.values()]
    boxes = [
        (
            node,
            _words(node),
            layout.boxes[node.name][0] + shift,
            layout.boxes[node.name][1] + _TOP,
            *sizes[node.name],
        )
        for node in nodes
    ]
    words = "; ".join(map(_words, nodes))
    key = drawing_key(title, words)
    return render(
        DRAWINGS, "graph", key, title, words, width, layout.height + _TOP, short, edges, boxes, DIFFERS
    )


def _cut(text: str, longest: int = _LONGEST) -> str:
    """The end of a name says most, and so does the beginning of a sentence."""
    clean = " ".join(text.split())
    if len(clean) <= longest:
        return clean
    dots = "\N{HORIZONTAL ELLIPSIS}"
    return clean[: longest - 1] + dots if " " in clean else dots + clean[-longest + 1 :]


def _width(text: str) -> float:
    return sum(_CHARACTER * (2 if unicodedata.east_asian_width(sign) in "WF" else 1) for sign in text)


def _size(node: DrawnNode) -> tuple[float, float]:
    lines = node.lines
    return (
        max(_NARROWEST, *(_width(line) for line in lines)) + 2 * _PADDING,
        len(lines) * _LINE + _PADDING,
    )


def _words(node: DrawnNode) -> str:
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
