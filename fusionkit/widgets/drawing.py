"""A small graph as inline SVG: nodes in layers by depth, inputs and outputs named, what differs marked in words."""

from __future__ import annotations

import hashlib
import html
import itertools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from fusionkit.widgets.layers import Spacing, lay_out
from fusionkit.widgets.tables import NOTHING_TO_SHOW, nothing

DIFFERS = "\N{NOT EQUAL TO}"  # begins a note that tells of a difference
MOST_NODES = 40  # more would be too small to read

_FONT, _CHARACTER, _LINE = (
    11,
    6.75,
    15,
)  # pixels: size, width of a character of a monospaced font, height of a line
_LONGEST = 30  # characters of a line of a box
_TOP, _PADDING = 24, 8
_NARROWEST = 64.0
_MARK, _MARK_FILL, _EDGE = "#cf222e", "#cf222e22", "#6e7781"


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
    width = max(layout.width, _width(_cut(title, 90)) + 2 * _PADDING)
    shift = (width - layout.width) / 2
    parts = [_edge([(x + shift, y + _TOP) for x, y in points]) for points in layout.lines.values()]
    for node in nodes:
        left, top = layout.boxes[node.name]
        parts.append(_box(node, left + shift, top + _TOP, *sizes[node.name]))
    words = "; ".join(_told(node) for node in nodes)
    return _svg(title, words, parts, width, layout.height + _TOP)


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


def _told(node: DrawnNode) -> str:
    of = f" of {', '.join(node.operands)}" if node.operands else ""
    notes = f" ({', '.join(node.notes)})" if node.notes else ""
    return f"{node.name}: {node.call or node.role}{of}{notes}"


def _box(node: DrawnNode, left: float, top: float, width: float, height: float) -> str:
    frame = f'stroke="{_MARK}" stroke-width="2.5"' if node.differs else 'stroke="currentColor"'
    fill = _MARK_FILL if node.differs else "none"
    dashes = "" if node.role == "call" else ' stroke-dasharray="4 3"'
    round_ = 3 if node.role == "call" else 10
    text = "".join(
        f'<text x="{left + width / 2:g}" y="{top + (index + 1) * _LINE - 1:g}" text-anchor="middle"'
        f' fill="currentColor"{_weight(line, index)}>{html.escape(line)}</text>'
        for index, line in enumerate(node.lines)
    )
    return (
        f"<g><title>{html.escape(_told(node))}</title>"
        f'<rect x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="{round_}" {frame} fill="{fill}"'
        f"{dashes}/>{text}</g>"
    )


def _weight(line: str, index: int) -> str:
    return ' font-weight="bold"' if index == 0 or line.startswith(DIFFERS) else ""


def _edge(points: Sequence[tuple[float, float]]) -> str:
    """A smooth line downwards with a head at its end."""
    (x, y), (end_x, end_y) = points[0], points[-1]
    path = [f"M{x:g} {y:g}"]
    for (x1, y1), (x2, y2) in itertools.pairwise(points):
        middle = (y1 + y2) / 2
        path.append(f"L{x2:g} {y2:g}" if x1 == x2 else f"C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {y2:g}")
    head = f"M{end_x:g} {end_y:g}l-3.5 -7h7z"
    return (
        f'<path d="{"".join(path)}" fill="none" stroke="{_EDGE}" stroke-width="1.2"/>'
        f'<path d="{head}" fill="{_EDGE}"/>'
    )


def _svg(title: str, words: str, parts: Sequence[str], width: float, height: float) -> str:
    key = hashlib.sha256("\n".join([title, words]).encode("utf-8")).hexdigest()[:12]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="n{key} d{key}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'style="max-width:100%;height:auto;margin:0.5em 0" font-family="ui-monospace, Menlo, Consolas, '
        f'DejaVu Sans Mono, monospace" font-size="{_FONT}">'
        f'<title id="n{key}">{html.escape(title)}</title><desc id="d{key}">{html.escape(words)}</desc>'
        f'<text x="{_PADDING}" y="15" fill="currentColor" font-weight="bold">{html.escape(_cut(title, 90))}</text>'
        + "".join(parts)
        + "</svg>"
    )
