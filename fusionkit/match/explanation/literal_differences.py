"""Literals of an aligned pattern that differ from the graph's, at the site's own shapes and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from fusionkit.match.explanation.align import Alignment
from fusionkit.match.explanation.differences import Difference
from fusionkit.match.explanation.moves import Node
from fusionkit.match.ops import describe, is_cast, operands, packet

DIMS = ("dim", "dims", "dim0", "dim1", "start_dim", "end_dim")
_SIZES = ("size", "shape", "normalized_shape", "split_size", "split_sizes", "repeats", "start", "end", "step")
_KEYWORDS = ("device", "layout", "memory_format", "pin_memory", "non_blocking")


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
            expected = again.get(label, first)
            if isinstance(first, Node) or stands_in(expected) or label not in theirs:
                continue
            actual = theirs[label]
            kind = _literal_type(label, expected)
            if specific is None and (
                kind == "dynamic_shape" or (kind == "dim_literal" and _same_from_end(p, g, expected, actual))
            ):
                continue
            if isinstance(actual, Node):
                texts = repr(expected), f"tensor {actual.name}"
                differences.append(Difference("scalar_literal", p, g, *texts, label))
            elif _differs(expected, actual):
                at_entry = kind == "dtype_path" and not _differs(first, actual)
                entry = cast_at_entry(alignment) if at_entry else None
                own = Difference(kind, p, g, repr(expected), repr(actual), label)
                differences.append(own if entry is None else entry)
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


def _literal_type(label: str, value: Any) -> str:
    """dim_literal, dynamic_shape, dtype_path, kwargs_structure or scalar_literal, by argument name and value type."""
    if isinstance(value, torch.dtype) or label == "dtype":
        return "dtype_path"
    if label in DIMS:
        return "dim_literal"
    if label in _SIZES:
        return "dynamic_shape"
    return "kwargs_structure" if label in _KEYWORDS else "scalar_literal"


def _differs(expected: Any, actual: Any) -> bool:
    """Whether two literals differ for torch's matcher: lists equal tuples, symbolic sizes compare by expression."""
    if isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        return len(expected) != len(actual) or any(
            _differs(a, b) for a, b in zip(expected, actual, strict=True)
        )
    if isinstance(actual, torch.SymInt) or isinstance(expected, torch.SymInt):
        return str(expected) != str(actual)
    return bool(expected != actual)


def _same_from_end(p: Node, g: Node, expected: Any, actual: Any) -> bool:
    """Whether two dims, or lists of dims, are the same dims counted from the end of tensors of two ranks."""
    ranks = [_rank(node) for node in (p, g)]
    ours, theirs = ([value] if isinstance(value, int) else list(value) for value in (expected, actual))
    if None in ranks or ranks[0] == ranks[1] or len(ours) != len(theirs):
        return not _differs(expected, actual)
    return all(
        a == b or (a >= 0 and b >= 0 and a - (ranks[0] or 0) == b - (ranks[1] or 0))
        for a, b in zip(ours, theirs, strict=True)
    )


def _rank(node: Node) -> int | None:
    value = node.all_input_nodes[0].meta.get("val") if node.all_input_nodes else None
    return value.dim() if isinstance(value, torch.Tensor) else None
