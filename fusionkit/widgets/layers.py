"""Layered layout of a small graph: nodes in layers by depth, lines led around the boxes between."""

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
    """Where everything stands, in pixels: `boxes` node -> (left, top); `lines` (operand, user) -> points downwards."""

    width: float
    height: float
    boxes: Mapping[str, tuple[float, float]]
    lines: Mapping[tuple[str, str], tuple[tuple[float, float], ...]]


def lay_out(operands: Mapping[str, Sequence[str]], sizes: Mapping[str, tuple[float, float]]) -> Layout:
    """Lay out a graph given in topological order as node -> operands; `sizes`: width and height of each box.

    Operands that are no earlier node of the graph are passed over. No two boxes overlap and no line crosses a box.
    """
    known: dict[str, list[str]] = {}
    for node, given in operands.items():
        known[node] = [operand for operand in dict.fromkeys(given) if operand in known]
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
    for user, given in known.items():
        for place, operand in enumerate(given):
            first, last = depth[operand], depth[user]
            enters = boxes[user][0] + sizes[user][0] * (0.5 + _port(place, len(given)))
            points = [(centres[operand, first] - left, tops[first] + sizes[operand][1])]
            points += [(points[0][0], bottoms[first])] if bottoms[first] > points[0][1] else []
            for level in range(first + 1, last):
                x = centres[_passing(operand, user), level] - left
                points += [(x, tops[level]), (x, bottoms[level])]
            lines[operand, user] = (*points, (enters, tops[last]))
    return Layout(right - left, height, boxes, lines)


def depths(operands: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Layer of each node: one below its lowest operand; a node without operands one above its first user."""
    depth: dict[str, int] = {}
    for node, given in operands.items():
        depth[node] = max((depth[o] + 1 for o in given), default=0)
    for node, given in operands.items():
        users = [depth[user] for user, used in operands.items() if node in used]
        if users and not given:
            depth[node] = min(users) - 1
    return depth


def _port(place: int, of: int) -> float:
    """Where the line of operand `place` enters its user's box: operands stand in their order."""
    return (place + 1) / (of + 1) - 0.5


def _passing(operand: str, user: str) -> str:
    return f"{operand}\n{user}"  # no name holds a line break


def _slots(
    operands: Mapping[str, Sequence[str]], depth: Mapping[str, int]
) -> tuple[list[list[Slot]], list[Link]]:
    """All places of each layer, passing lines included, and the links between neighbouring layers."""
    rows: list[list[Slot]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    links: list[Link] = []
    for node, level in depth.items():
        rows[level].append((node, level))
    for user, given in operands.items():
        for place, operand in enumerate(given):
            above: Slot = (operand, depth[operand])
            for level in range(depth[operand] + 1, depth[user]):
                slot = (_passing(operand, user), level)
                rows[level].append(slot)
                links.append((above, slot, 0.0))
                above = slot
            links.append((above, (user, depth[user]), _port(place, len(given))))
    return rows, links


def _neighbours(links: Sequence[Link]) -> tuple[dict[Slot, list[Link]], dict[Slot, list[Link]]]:
    above: dict[Slot, list[Link]] = {}
    below: dict[Slot, list[Link]] = {}
    for link in links:
        above.setdefault(link[1], []).append(link)
        below.setdefault(link[0], []).append(link)
    return above, below


def _ordered(rows: Sequence[Sequence[Slot]], links: Sequence[Link]) -> list[list[Slot]]:
    """Each layer in an order with few crossings: sorted by the mean place of the neighbours, down and up."""
    above, below = _neighbours(links)
    best = [list(row) for row in rows]
    fewest = _crossings(best, links)
    now = [list(row) for row in rows]
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        place = _places(now)
        for row in now if downwards else reversed(now):
            mean = {
                slot: _mean([place[one] for one, _, _ in above[slot]])
                if downwards and slot in above
                else _mean([place[other] + port for _, other, port in below[slot]])
                if not downwards and slot in below
                else place[slot]
                for slot in row
            }
            row.sort(key=mean.__getitem__)
            place |= {slot: index for index, slot in enumerate(row)}
        crossings = _crossings(now, links)
        if crossings < fewest:
            fewest, best = crossings, [list(row) for row in now]
    return best


def _places(rows: Sequence[Sequence[Slot]]) -> dict[Slot, float]:
    return {slot: float(index) for row in rows for index, slot in enumerate(row)}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _crossings(rows: Sequence[Sequence[Slot]], links: Sequence[Link]) -> int:
    place = _places(rows)
    levels: dict[int, list[tuple[float, float]]] = {}
    for one, other, port in links:
        levels.setdefault(one[1], []).append((place[one], place[other] + port))
    return sum(
        (a - c) * (b - d) < 0
        for lines in levels.values()
        for (a, b), (c, d) in itertools.combinations(lines, 2)
    )


def _across(
    rows: Sequence[Sequence[Slot]], links: Sequence[Link], widths: Mapping[Slot, float]
) -> dict[Slot, float]:
    """Centres: each as near to its neighbours' mean as the order and the gaps allow; a chain stands upright."""
    near = _pulls(links, widths)
    singles = [[slot] for row in rows for slot in row]
    for columns in (_columns(rows, links), singles):
        owner = {slot: index for index, column in enumerate(columns) for slot in column}
        apart = _apart(rows, owner, widths)
        before = {index: {one for one, other in apart if other == index} for index in range(len(columns))}
        with contextlib.suppress(graphlib.CycleError):  # chains that cross cannot all stand upright
            order = list(graphlib.TopologicalSorter(before).static_order())
            break
    place = spread([0.0] * len(columns), order, apart)
    for _ in range(_PULLS):
        middle = _mean(place or [0.0])
        wanted = list(place)
        for index, column in enumerate(columns):
            pulls = [place[owner[other]] + by for slot in column for other, by in near.get(slot, ())]
            wanted[index] = (place[index] + _mean(pulls or [place[index]])) / 2
            wanted[index] += (middle - wanted[index]) * _GRAVITY
        place = spread(wanted, order, apart)
    return {slot: place[index] for slot, index in owner.items()}


def _apart(
    rows: Sequence[Sequence[Slot]], owner: Mapping[Slot, int], widths: Mapping[Slot, float]
) -> dict[tuple[int, int], float]:
    """The least distance of neighbouring columns (left, right); `owner`: the column of each slot."""
    apart: dict[tuple[int, int], float] = {}
    for row in rows:
        for one, other in itertools.pairwise(row):
            pair = owner[one], owner[other]
            apart[pair] = max(apart.get(pair, 0.0), (widths[one] + widths[other]) / 2 + _ACROSS)
    return apart


def _pulls(links: Sequence[Link], widths: Mapping[Slot, float]) -> dict[Slot, list[tuple[Slot, float]]]:
    """For each slot the neighbours that it would stand above or below, and how far beside their centres."""
    near: dict[Slot, list[tuple[Slot, float]]] = {}
    for one, other, port in links:
        near.setdefault(one, []).append((other, port * widths[other]))
        near.setdefault(other, []).append((one, -port * widths[other]))
    return near


def _columns(rows: Sequence[Sequence[Slot]], links: Sequence[Link]) -> list[list[Slot]]:
    """Chains that are to stand upright: passing lines, and boxes of which each is all that the next one uses."""
    above, below = _neighbours(links)
    column: dict[Slot, list[Slot]] = {slot: [slot] for row in rows for slot in row}
    for one, other, _ in links:
        passing = "\n" in one[0] and "\n" in other[0]
        lone = len(above[other]) == 1 and [o for _, o, _ in below[one] if "\n" not in o[0]] == [other]
        if passing or (lone and "\n" not in one[0]):
            joined = column[one] + column[other]
            column |= dict.fromkeys(joined, joined)
    return list({id(chain): chain for chain in column.values()}.values())


def spread(
    wanted: Sequence[float], order: Sequence[int], apart: Mapping[tuple[int, int], float]
) -> list[float]:
    """Places near `wanted` at which `apart` (left, right) -> least distance holds; `order` runs from left to right.

    The mean of two arrangements that keep the distances, pushed to the right and to the left, keeps them too.
    """
    right, left = list(wanted), list(wanted)
    after: dict[int, list[int]] = {}
    for one, other in apart:
        after.setdefault(one, []).append(other)
    for one in order:
        for other in after.get(one, ()):
            right[other] = max(right[other], right[one] + apart[one, other])
    for one in reversed(order):
        for other in after.get(one, ()):
            left[one] = min(left[one], left[other] - apart[one, other])
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
