"""Layered layout of a small graph: nodes in layers by depth, lines around the boxes between them."""

from __future__ import annotations

import contextlib
import graphlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Slot = tuple[str, int]  # a node and its layer; for a line that passes through: (line's key, layer)
# From the upper to the lower slot, and the point at which it enters the lower box: -0.5 left to 0.5 right.
Link = tuple[Slot, Slot, float]
_SWEEPS, _PULLS = 12, 300
_ACROSS, _DOWN, _LINE, _MARGIN = (
    22.0,
    32.0,
    12.0,
    8.0,
)  # pixels: gaps between boxes and layers, width for a line
_GRAVITY = 0.02  # share of the way to the middle at each pull, so that unconnected nodes do not drift away


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions in pixels: `boxes` node -> (left, top); `lines` (operand, user) -> points downwards."""

    width: float
    height: float
    boxes: Mapping[str, tuple[float, float]]
    lines: Mapping[tuple[str, str], tuple[tuple[float, float], ...]]


def lay_out(operands: Mapping[str, Sequence[str]], sizes: Mapping[str, tuple[float, float]]) -> Layout:
    """Lay out a graph in topological order, as node -> operands; `sizes`: width and height of each box.

    Operands that are not an earlier node of the graph are ignored. No two boxes overlap and no line crosses a box.
    """
    known: dict[str, list[str]] = {}
    for node, inputs in operands.items():
        known[node] = [operand for operand in dict.fromkeys(inputs) if operand in known]
    depth = depths(known)
    slots, links = _slots(known, depth)
    rows = _ordered(slots, links)
    widths = {slot: sizes[slot[0]][0] if slot[0] in sizes else _LINE for row in rows for slot in row}
    centres = _across(rows, links, widths)
    left = min((centres[s] - widths[s] / 2 for s in centres), default=0.0) - _MARGIN
    right = max((centres[s] + widths[s] / 2 for s in centres), default=0.0) + _MARGIN
    tops, bottoms, height = _down(rows, sizes)
    boxes = {
        node: (centres[node, level] - sizes[node][0] / 2 - left, tops[level]) for node, level in depth.items()
    }
    lines = {}
    for user, inputs in known.items():
        for index, operand in enumerate(inputs):
            first, last = depth[operand], depth[user]
            end_x = boxes[user][0] + sizes[user][0] * (0.5 + _port(index, len(inputs)))
            points = [(centres[operand, first] - left, tops[first] + sizes[operand][1])]
            points += [(points[0][0], bottoms[first])] if bottoms[first] > points[0][1] else []
            for level in range(first + 1, last):
                x = centres[_passing(operand, user), level] - left
                points += [(x, tops[level]), (x, bottoms[level])]
            lines[operand, user] = (*points, (end_x, tops[last]))
    return Layout(right - left, height, boxes, lines)


def depths(operands: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Layer of each node: one below its lowest operand; a node without operands one above its first user."""
    depth: dict[str, int] = {}
    for node, inputs in operands.items():
        depth[node] = max((depth[o] + 1 for o in inputs), default=0)
    for node, inputs in operands.items():
        users = [depth[user] for user, used in operands.items() if node in used]
        if users and not inputs:
            depth[node] = min(users) - 1
    return depth


def _port(index: int, count: int) -> float:
    """The point at which the line of one of `count` operands enters its user's box, in the operands' order."""
    return (index + 1) / (count + 1) - 0.5


def _passing(operand: str, user: str) -> str:
    return f"{operand}\n{user}"  # no name has a line break


def _slots(
    operands: Mapping[str, Sequence[str]], depth: Mapping[str, int]
) -> tuple[list[list[Slot]], list[Link]]:
    """All slots of each layer, those of passing lines included, and the links between neighbouring layers."""
    rows: list[list[Slot]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    links: list[Link] = []
    for node, level in depth.items():
        rows[level].append((node, level))
    for user, inputs in operands.items():
        for index, operand in enumerate(inputs):
            above: Slot = (operand, depth[operand])
            for level in range(depth[operand] + 1, depth[user]):
                slot = (_passing(operand, user), level)
                rows[level].append(slot)
                links.append((above, slot, 0.0))
                above = slot
            links.append((above, (user, depth[user]), _port(index, len(inputs))))
    return rows, links


def _neighbours(links: Sequence[Link]) -> tuple[dict[Slot, list[Link]], dict[Slot, list[Link]]]:
    above: dict[Slot, list[Link]] = {}
    below: dict[Slot, list[Link]] = {}
    for link in links:
        above.setdefault(link[1], []).append(link)
        below.setdefault(link[0], []).append(link)
    return above, below


def _ordered(rows: Sequence[Sequence[Slot]], links: Sequence[Link]) -> list[list[Slot]]:
    """Each layer in an order with few crossings: sorted by the mean position of the neighbours, down and up."""
    above, below = _neighbours(links)
    best = [list(row) for row in rows]
    fewest = _crossings(best, links)
    current = [list(row) for row in rows]
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        position = _positions(current)
        for row in current if downwards else reversed(current):
            mean = {
                slot: _mean([position[upper] for upper, _, _ in above[slot]])
                if downwards and slot in above
                else _mean([position[lower] + port for _, lower, port in below[slot]])
                if not downwards and slot in below
                else position[slot]
                for slot in row
            }
            row.sort(key=mean.__getitem__)
            position |= {slot: index for index, slot in enumerate(row)}
        crossings = _crossings(current, links)
        if crossings < fewest:
            fewest, best = crossings, [list(row) for row in current]
    return best


def _positions(rows: Sequence[Sequence[Slot]]) -> dict[Slot, float]:
    return {slot: float(index) for row in rows for index, slot in enumerate(row)}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _crossings(rows: Sequence[Sequence[Slot]], links: Sequence[Link]) -> int:
    position = _positions(rows)
    levels: dict[int, list[tuple[float, float]]] = {}
    for upper, lower, port in links:
        levels.setdefault(upper[1], []).append((position[upper], position[lower] + port))
    return sum(
        (a - c) * (b - d) < 0
        for lines in levels.values()
        for (a, b), (c, d) in itertools.combinations(lines, 2)
    )


def _across(
    rows: Sequence[Sequence[Slot]], links: Sequence[Link], widths: Mapping[Slot, float]
) -> dict[Slot, float]:
    """Centres: each as near to its neighbours' mean as the order and the gaps allow; a chain is upright."""
    pulls = _pulls(links, widths)
    singles = [[slot] for row in rows for slot in row]
    for columns in (_columns(rows, links), singles):
        owner = {slot: index for index, column in enumerate(columns) for slot in column}
        apart = _apart(rows, owner, widths)
        before = {index: {left for left, right in apart if right == index} for index in range(len(columns))}
        with contextlib.suppress(graphlib.CycleError):  # chains that cross cannot all be upright
            order = list(graphlib.TopologicalSorter(before).static_order())
            break
    centre = spread([0.0] * len(columns), order, apart)
    for _ in range(_PULLS):
        middle = _mean(centre or [0.0])
        wanted = list(centre)
        for index, column in enumerate(columns):
            targets = [
                centre[owner[other]] + shift for slot in column for other, shift in pulls.get(slot, ())
            ]
            wanted[index] = (centre[index] + _mean(targets or [centre[index]])) / 2
            wanted[index] += (middle - wanted[index]) * _GRAVITY
        centre = spread(wanted, order, apart)
    return {slot: centre[index] for slot, index in owner.items()}


def _apart(
    rows: Sequence[Sequence[Slot]], owner: Mapping[Slot, int], widths: Mapping[Slot, float]
) -> dict[tuple[int, int], float]:
    """The least distance of neighbouring columns (left, right); `owner`: the column of each slot."""
    apart: dict[tuple[int, int], float] = {}
    for row in rows:
        for left, right in itertools.pairwise(row):
            pair = owner[left], owner[right]
            apart[pair] = max(apart.get(pair, 0.0), (widths[left] + widths[right]) / 2 + _ACROSS)
    return apart


def _pulls(links: Sequence[Link], widths: Mapping[Slot, float]) -> dict[Slot, list[tuple[Slot, float]]]:
    """For each slot its neighbours, and the offset from their centres at which it is above or below them."""
    pulls: dict[Slot, list[tuple[Slot, float]]] = {}
    for upper, lower, port in links:
        pulls.setdefault(upper, []).append((lower, port * widths[lower]))
        pulls.setdefault(lower, []).append((upper, -port * widths[lower]))
    return pulls


def _columns(rows: Sequence[Sequence[Slot]], links: Sequence[Link]) -> list[list[Slot]]:
    """Chains to draw upright: passing lines, and boxes of which each is the only operand of the next."""
    above, below = _neighbours(links)
    column: dict[Slot, list[Slot]] = {slot: [slot] for row in rows for slot in row}
    for upper, lower, _ in links:
        passing = "\n" in upper[0] and "\n" in lower[0]
        lone = len(above[lower]) == 1 and [o for _, o, _ in below[upper] if "\n" not in o[0]] == [lower]
        if passing or (lone and "\n" not in upper[0]):
            joined = column[upper] + column[lower]
            column |= dict.fromkeys(joined, joined)
    return list({id(chain): chain for chain in column.values()}.values())


def spread(
    wanted: Sequence[float], order: Sequence[int], apart: Mapping[tuple[int, int], float]
) -> list[float]:
    """Positions near `wanted` with at least the distances `apart` (left, right) -> distance; `order` runs from left to right.

    The mean of two arrangements that keep the distances, pushed to the right and to the left, keeps them too.
    """
    right, left = list(wanted), list(wanted)
    after: dict[int, list[int]] = {}
    for left_index, right_index in apart:
        after.setdefault(left_index, []).append(right_index)
    for index in order:
        for neighbour in after.get(index, ()):
            right[neighbour] = max(right[neighbour], right[index] + apart[index, neighbour])
    for index in reversed(order):
        for neighbour in after.get(index, ()):
            left[index] = min(left[index], left[neighbour] - apart[index, neighbour])
    return [(a + b) / 2 for a, b in zip(right, left, strict=True)]


def _down(
    rows: Sequence[Sequence[Slot]], sizes: Mapping[str, tuple[float, float]]
) -> tuple[list[float], list[float], float]:
    """Top and bottom of each layer, and the height of all."""
    tops, bottoms = [], []
    y = _MARGIN
    for row in rows:
        tops.append(y)
        y += max((sizes[name][1] for name, _ in row if name in sizes), default=0.0)
        bottoms.append(y)
        y += _DOWN
    return tops, bottoms, (bottoms[-1] if bottoms else 0.0) + _MARGIN
