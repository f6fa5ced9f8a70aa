"""Literals of an aligned pattern that differ from the graph's, at the site's own shapes and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx

from fusionkit.match.explanation.align import Alignment
from fusionkit.match.explanation.differences import Difference
from fusionkit.match.explanation.literal_types import differs, literal_type, same_from_end
from fusionkit.match.explanation.moves import Node
from fusionkit.match.ops import describe, is_cast, operands, packet


def literal_differences(
    alignment: Alignment, specific: Mapping[Node, Node] | None, stands_in: Callable[[Any], bool]
) -> list[Difference]:
    """Literals that differ, with their type.

    `specific`: the pattern's nodes -> those of its retrace at the site's shapes. Without a retrace dims are compared
    from the end if the ranks differ, and sizes are not compared.
    """
    differences = []
    for p, g in alignment.pairs.items():
        if packet(p) != packet(g):
            continue
        ours, theirs = operands(p), operands(g)
        again = ours if specific is None or p not in specific else operands(specific[p])
        for label, first in ours.items():
            if isinstance(first, Node) or stands_in(first) or label not in theirs:
                continue
            expected, actual = again.get(label, first), theirs[label]
            kind = literal_type(label, expected)
            if specific is None and (
                kind == "dynamic_shape" or (kind == "dim_literal" and same_from_end(p, g, expected, actual))
            ):
                continue
            if isinstance(actual, Node):
                differences.append(
                    Difference("scalar_literal", p, g, repr(expected), f"tensor {actual.name}", label)
                )
            elif differs(expected, actual):
                entry = (
                    cast_at_entry(alignment) if kind == "dtype_path" and not differs(first, actual) else None
                )
                if entry is not None:
                    differences.append(entry)
                    continue
                differences.append(Difference(kind, p, g, repr(expected), repr(actual), label))
    return differences


def cast_at_entry(alignment: Alignment) -> Difference | None:
    """The graph's cast that binds an argument to another dtype than its example's, or None."""
    for p, g in alignment.bindings.items():
        if not isinstance(g, Node) or not is_cast(g):
            continue
        ours, theirs = p.meta.get("val"), g.meta.get("val")
        if not isinstance(ours, torch.Tensor) or not isinstance(theirs, torch.Tensor):
            continue
        if ours.dtype != theirs.dtype:
            return Difference("dtype_path", p, g, "no cast", describe(g))
    return None
