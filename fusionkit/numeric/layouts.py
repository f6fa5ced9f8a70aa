"""The same computation on tensors of other strides and sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_leaves

from fusionkit.numeric.samples import random_like

_SHAPING = frozenset(
    [
        "view",
        "_unsafe_view",
        "reshape",
        "expand",
        "repeat",
        "split",
        "split_with_sizes",
        "slice",
        "select",
        "narrow",
        "unfold",
        "as_strided",
        "constant_pad_nd",
        "arange",
        "full",
        "zeros",
        "ones",
        "empty",
    ]
)
_ROWS = (1, 3, 7, 257)
_COLUMNS = (1032,)


def other_strides(inputs: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """The inputs' values in other layouts: contiguous, transposed in memory, with an offset."""
    yield "contiguous tensors", [_map(value, torch.Tensor.contiguous) for value in inputs]
    yield "transposed in memory", [_map(value, _transposed) for value in inputs]
    yield "tensors with an offset in their storage", [_map(value, _with_offset) for value in inputs]


def other_sizes(
    inputs: Sequence[Any], generator: torch.Generator, literals: Collection[int] = ()
) -> Iterator[tuple[str, list[Any]]]:
    """Normal values where a size that several dims share is replaced: of the leading dims, then of the last one.

    A size that one of the `literals` divides stays: the original is a graph that was made for it.
    """
    tensors = [value for value in inputs if isinstance(value, torch.Tensor) and value.is_floating_point()]
    if not tensors:
        return
    largest = max(tensors, key=torch.Tensor.dim)
    for dim in range(largest.dim()):
        size = largest.shape[dim]
        for other in _COLUMNS if dim == largest.dim() - 1 else _ROWS:
            if size not in (1, other) and all(size % literal for literal in literals):
                resized = [
                    _resized(value, size, other, dim == largest.dim() - 1, generator) for value in inputs
                ]
                yield f"{other} in place of {size} in dim {dim}", resized


def size_literals(nodes: Iterable[torch.fx.Node]) -> frozenset[int]:
    """The numbers above 1 in the arguments of a graph's shape ops, which a capture made of the sizes of its inputs."""
    shaping = [node for node in nodes if node.op == "call_function" and _name(node.target) in _SHAPING]
    leaves = [leaf for node in shaping for leaf in tree_leaves((node.args, node.kwargs))]
    return frozenset(leaf for leaf in leaves if type(leaf) is int and leaf > 1)


def _name(target: Any) -> str:
    return str(getattr(getattr(target, "overloadpacket", None), "__name__", ""))


def in_float32(inputs: Sequence[Any], generator: torch.Generator) -> Iterator[tuple[str, list[Any]]]:
    """Normal values in float32 for inputs of lower precision: bfloat16 hides a difference of less than 2**-8."""
    floating = [isinstance(value, torch.Tensor) and value.is_floating_point() for value in inputs]
    if any(
        value.dtype in (torch.bfloat16, torch.float16) for value in inputs if isinstance(value, torch.Tensor)
    ):
        pairs = zip(inputs, floating, strict=True)
        yield "float32", [random_like(x.float(), 1.0, generator) if is_float else x for x, is_float in pairs]


def _map(value: Any, change: Any) -> Any:
    return change(value) if isinstance(value, torch.Tensor) else value


def _transposed(value: torch.Tensor) -> torch.Tensor:
    return value.transpose(-1, -2).contiguous().transpose(-1, -2) if value.dim() > 1 else value


def _with_offset(value: torch.Tensor) -> torch.Tensor:
    if not value.numel():
        return value
    flat = torch.cat((value.new_zeros(3), value.contiguous().reshape(-1)))
    return flat[3:].view(value.shape)


def _resized(value: Any, size: int, other: int, last: bool, generator: torch.Generator) -> Any:
    """The tensor with `other` for `size`: in its last dim, or in the dims before it."""
    if not isinstance(value, torch.Tensor) or not value.dim():
        return value
    shape = list(value.shape)
    dims = [value.dim() - 1] if last else range(value.dim() - 1)
    for dim in dims:
        if shape[dim] == size:
            shape[dim] = other
    if shape == list(value.shape):
        return value
    like = torch.empty(shape, dtype=value.dtype)
    if value.is_floating_point():
        return random_like(like, 1.0, generator)
    return value.reshape(-1)[torch.arange(like.numel()) % value.numel()].reshape(shape)
