"""Inputs of a replay: random draws with the original strides, and copies that reveal writes to an input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from fusionkit.errors import MisuseError
from fusionkit.numeric.figures import bit_equal

MIN_ROWS = 32
"""Rows (product of all dims but the last) that the random regimes compare at least."""


def choose_activations(inputs: Sequence[Any], activations: Sequence[int] | None) -> tuple[int, ...]:
    """Indexes of the inputs that are drawn at random."""
    floating = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.is_floating_point()]
    if activations is None:
        return tuple(i for i in floating if inputs[i].dim() >= 2) or tuple(floating)
    for index in activations:
        if index not in floating:
            raise MisuseError(
                f"activations: input {index} is no floating tensor; floating ones are {floating}"
            )
    return tuple(activations)


def count_draws(activations: Sequence[torch.Tensor]) -> int:
    """How often random inputs have to be drawn for MIN_ROWS rows."""
    rows = [tensor.numel() // tensor.shape[-1] for tensor in activations if tensor.dim() and tensor.numel()]
    return max(1, math.ceil(MIN_ROWS / min(rows))) if rows else 1


def draw(
    inputs: Sequence[Any], chosen: Sequence[int], mean_square: float, generator: torch.Generator
) -> list[Any]:
    """The inputs with the chosen ones replaced by random values."""
    drawn = list(inputs)
    for index in chosen:
        drawn[index] = random_like(inputs[index], mean_square, generator)
    return drawn


def random_like(tensor: torch.Tensor, mean_square: float, generator: torch.Generator) -> torch.Tensor:
    """Normal values with about this mean square, in the shape, strides, dtype and device of `tensor`.

    Drawn in float32 on CPU, so that one seed gives the same values (rounded) in every dtype.
    """
    values = torch.randn(_span(tensor), generator=generator) * mean_square**0.5
    flat = values.to(device=tensor.device, dtype=tensor.dtype)
    drawn: torch.Tensor = flat.as_strided(tensor.shape, tensor.stride())
    return drawn


def example_like(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A CPU tensor of its shape, strides and dtype: normal values; vectors are gains; whole numbers are zeros, bools drawn."""
    empty = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
    if like.dtype is torch.bool:
        return empty.copy_(torch.rand(like.shape, generator=generator) < 0.5)
    if not (like.is_floating_point() or like.is_complex()):
        return empty.zero_()
    values = random_like(empty, 1.0, generator)
    return as_gains(values.float(), generator).to(like.dtype) if like.dim() == 1 else values


def as_gains(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Normal `values` (float32) as gains: of random sign, with a magnitude of 1 to 2, away from 0 and 1."""
    sign = torch.where(torch.rand(values.shape, generator=generator) < 0.5, -1.0, 1.0)
    return sign * (1.5 + 0.25 * values.clamp(-2, 2))


def _span(tensor: torch.Tensor) -> int:
    """Number of storage elements that a tensor's shape and strides reach."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def clone(value: Any) -> Any:
    """A copy of a tensor with its exact strides (overlaps and gaps kept); other values as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    tensor = value.detach()
    flat = tensor.as_strided((_span(tensor),), (1,), tensor.storage_offset())
    return flat.clone().as_strided(tensor.shape, tensor.stride(), 0)


def written(before: Any, after: Any) -> bool:
    """Whether a call changed its copy `after` of the input `before`."""
    if not isinstance(before, torch.Tensor):
        return False
    changed = before.shape != after.shape or before.dtype != after.dtype
    return changed or not bit_equal(before.detach(), after.detach())


def stack(results: list[Any]) -> Any:
    """The results of several samples as one: tensors in a new first dim; a single one as it is."""
    return results[0] if len(results) == 1 else tree_map(_stack_leaves, *results)


def _stack_leaves(*leaves: Any) -> Any:
    """Tensors of one shape stacked; anything else as in the first sample."""
    if all(isinstance(leaf, torch.Tensor) and leaf.shape == leaves[0].shape for leaf in leaves):
        return torch.stack(leaves)
    return leaves[0]
