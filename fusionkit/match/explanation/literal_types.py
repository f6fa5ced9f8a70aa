"""Comparison of a pattern's literals with the graph's, and the cause type of a difference."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

_DIMS = ("dim", "dims", "dim0", "dim1", "start_dim", "end_dim")
_SIZES = ("size", "shape", "normalized_shape", "split_size", "split_sizes", "repeats", "start", "end", "step")
_KEYWORDS = ("device", "layout", "memory_format", "pin_memory", "non_blocking")


def literal_type(label: str, value: Any) -> str:
    """dim_literal, dynamic_shape, dtype_path, kwargs_structure or scalar_literal, by argument name and value type."""
    if isinstance(value, torch.dtype) or label == "dtype":
        return "dtype_path"
    if label in _DIMS:
        return "dim_literal"
    if label in _SIZES:
        return "dynamic_shape"
    return "kwargs_structure" if label in _KEYWORDS else "scalar_literal"


def differs(expected: Any, actual: Any) -> bool:
    """Whether two literals differ for torch's matcher: lists equal tuples, symbolic sizes compare by expression."""
    if isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        return len(expected) != len(actual) or any(
            differs(a, b) for a, b in zip(expected, actual, strict=True)
        )
    if isinstance(actual, torch.SymInt) or isinstance(expected, torch.SymInt):
        return str(expected) != str(actual)
    return bool(expected != actual)


def same_from_end(p: torch.fx.Node, g: torch.fx.Node, expected: Any, actual: Any) -> bool:
    """Whether two dims, or lists of dims, are the same dims counted from the end of tensors of two ranks."""
    ranks = [_rank(node) for node in (p, g)]
    ours, theirs = ([value] if isinstance(value, int) else list(value) for value in (expected, actual))
    if None in ranks or ranks[0] == ranks[1] or len(ours) != len(theirs):
        return not differs(expected, actual)
    return all(
        a == b or (a >= 0 and b >= 0 and a - (ranks[0] or 0) == b - (ranks[1] or 0))
        for a, b in zip(ours, theirs, strict=True)
    )


def _rank(node: torch.fx.Node) -> int | None:
    value = node.all_input_nodes[0].meta.get("val") if node.all_input_nodes else None
    return value.dim() if isinstance(value, torch.Tensor) else None
