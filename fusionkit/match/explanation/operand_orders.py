"""The ways to pair the operands of two calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch.fx

from fusionkit.match.explanation.costs import ONE_SIDED, ORDER

Node = torch.fx.Node


def orders(
    a: Sequence[Node], b: Sequence[Node]
) -> Iterator[tuple[float, tuple[int, ...], list[tuple[Node, Node]]]]:
    """Ways to pair the operands `a` and `b`: extra cost, index in `b` for each of `a`, pairs."""
    if len(a) == len(b):
        straight = tuple(range(len(a)))
        yield 0.0, straight, list(zip(a, b, strict=True))
        if 2 <= len(a) <= 3:
            for order in itertools.permutations(straight):
                if order != straight:
                    yield ORDER, order, [(a[index], b[place]) for index, place in enumerate(order)]
        return
    short, long = (a, b) if len(a) < len(b) else (b, a)
    missing = ONE_SIDED * (len(long) - len(short))
    for places in itertools.islice(itertools.combinations(range(len(long)), len(short)), 12):
        chosen = [long[place] for place in places]
        pairs = list(zip(short, chosen, strict=True)) if long is b else list(zip(chosen, short, strict=True))
        yield missing, places, pairs
