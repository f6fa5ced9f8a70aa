"""Attention by plain float64 loops, and its input layouts by numpy: what npu_fusion_attention is held against."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Kept = Callable[[int, int, int, int], bool]  # batch, head, query, key


def keep_all(*_: int) -> bool:
    return True


def attend(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    scale: float,
    kept: Kept = keep_all,
    pse: Callable[[int, int, int, int], float] = lambda *_: 0.0,
    sink: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(attention, largest score, sum of exponentials) of [B, N, S, D] arrays; a row without any key gives 0."""
    batch, heads, rows, _ = query.shape
    group = heads // key.shape[1]
    result = np.zeros((batch, heads, rows, value.shape[-1]))
    top, total = np.zeros((batch, heads, rows)), np.zeros((batch, heads, rows))
    for b, n, i in np.ndindex(batch, heads, rows):
        scores = {}
        for j in range(key.shape[2]):
            if kept(b, n, i, j):
                dot = sum(x * y for x, y in zip(query[b, n, i], key[b, n // group, j], strict=True))
                scores[j] = scale * (dot + pse(b, n, i, j))
        extra = [] if sink is None else [float(sink[n])]
        if not scores:
            continue
        top[b, n, i] = max([*scores.values(), *extra])
        total[b, n, i] = sum(math.exp(score - top[b, n, i]) for score in [*scores.values(), *extra])
        for j, score in scores.items():
            result[b, n, i] += math.exp(score - top[b, n, i]) / total[b, n, i] * value[b, n // group, j]
    return result, top, total


def arranged(x: np.ndarray, layout: str) -> np.ndarray:
    """A [B, N, S, D] array in layout."""
    if layout == "BNSD":
        return x
    by_token = x.swapaxes(1, 2)
    if layout == "BSND":
        return by_token
    joined = by_token.reshape(*by_token.shape[:2], -1)
    return joined if layout == "BSH" else joined.swapaxes(0, 1)


def tensor(x: np.ndarray, layout: str, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(arranged(x, layout))).to(dtype)


def rounded(x: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """The values that a tensor of dtype holds of x, in float64."""
    return torch.from_numpy(x).to(dtype).double().numpy()


def random_inputs(
    seed: int, dtype: torch.dtype, query: tuple[int, ...], key: tuple[int, ...], value_size: int
) -> list[np.ndarray]:
    """query, key, value [B, N, S, D] in float64, with values that dtype holds exactly."""
    generator = np.random.default_rng(seed)
    shapes = (query, key, (*key[:3], value_size))
    return [rounded(generator.standard_normal(shape), dtype) for shape in shapes]


def template(dtype: torch.dtype = torch.bool) -> torch.Tensor:
    """The mask of sparse modes 2 to 4: 2048 wide whatever S is."""
    return torch.ones(2048, 2048).triu(1).to(dtype)


def dense(parts: list[np.ndarray], heads: int, layout: str, dtype: torch.dtype) -> tuple[Any, ...]:
    """Positional arguments of the op."""
    return (*(tensor(part, layout, dtype) for part in parts), heads, layout)
