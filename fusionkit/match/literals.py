"""Literals of a pattern against literals of the graph, compared at the site's own shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.fx

from fusionkit.match.align import Alignment, Difference
from fusionkit.match.ops import operands

_DIMS = ("dim", "dims", "dim0", "dim1", "start_dim", "end_dim")
_SIZES = ("size", "shape", "normalized_shape", "split_size", "split_sizes", "repeats", "start", "end")


def literal_differences(
    alignment: Alignment,
    specific: Mapping[torch.fx.Node, torch.fx.Node] | None,
    stand_ins: Mapping[str, float],
) -> list[Difference]:
    """Literals that differ, with their type.

    `specific` maps the pattern's nodes to those of its retrace at the site's shapes (None: it could not be
    retraced, the first trace's literals are compared). A value in `stand_ins` matches anything.
    """
    found = []
    for p, g, label, first, actual in alignment.literals:
        expected = (
            first if specific is None or p not in specific else _same_operand(specific[p], label, first)
        )
        if _stands_in(first, stand_ins) or equal(expected, actual):
            continue
        found.append(Difference(literal_type(label, expected), p, g, f"{expected!r}", f"{actual!r}", label))
    return found


def literal_type(label: str, value: Any) -> str:
    """dim_literal, dynamic_shape, dtype_path or scalar_literal, from the argument's name and kind."""
    if isinstance(value, torch.dtype) or label == "dtype":
        return "dtype_path"
    if label in _DIMS:
        return "dim_literal"
    if label in _SIZES:
        return "dynamic_shape"
    if label in ("device", "layout", "memory_format", "pin_memory"):
        return "kwargs_structure"
    return "scalar_literal"


def equal(expected: Any, actual: Any) -> bool:
    """As torch's matcher compares: lists and tuples alike, everything else by ==."""
    if isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        return len(expected) == len(actual) and all(
            equal(a, b) for a, b in zip(expected, actual, strict=True)
        )
    if isinstance(actual, torch.SymInt) or isinstance(expected, torch.SymInt):
        return str(expected) == str(actual)
    return bool(expected == actual)


def _same_operand(node: torch.fx.Node, label: str, fallback: Any) -> Any:
    return operands(node).get(label, fallback)


def _stands_in(value: Any, stand_ins: Mapping[str, float]) -> bool:
    return isinstance(value, int | float) and value in stand_ins.values()
