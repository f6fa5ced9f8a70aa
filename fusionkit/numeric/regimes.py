"""The values that a counterexample search draws for one argument: one row for each regime.

A regime gives a tensor of the argument's shape, strides and dtype. "Row" is the last dim, as in a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from fusionkit.numeric.samples import as_gains, random_like

Draw = Callable[[torch.Tensor, torch.Generator], torch.Tensor]

REQUIRED = ("mean square 1e-2", "mean square 1", "mean square 1e2")
"""Regimes that every floating argument must be judged in, or the search is INCONCLUSIVE."""


LARGEST = "the dtype's largest numbers"
"""The regime in which sums of finite numbers overflow or not depending on their order."""


@dataclass(frozen=True, slots=True)
class Regime:
    """`draw` makes the values; `finite`: whether they are finite wherever the dtype can hold them."""

    name: str
    draw: Draw
    finite: bool = True


def _normal(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return random_like(like, 1.0, generator)


def _scaled(mean_square: float) -> Draw:
    return lambda like, generator: random_like(like, mean_square, generator)


def _gains(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Of both signs, with magnitudes of 1 to 2: away from the neutral values 0 and 1."""
    return into(like, as_gains(_normal(like, generator).float(), generator))


def _rows_of_all_scales(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Row by row a mean square from 1e-8 to 1e8."""
    rows = _rows(like)
    scale = torch.logspace(-4, 4, rows)[torch.randperm(rows, generator=generator)]
    return into(like, _by_row(_normal(like, generator).float(), scale))


def _single_large(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One element of 1e4 in every row."""
    values = _normal(like, generator).float().reshape(_rows(like), -1)
    if values.numel():
        column = torch.randint(values.shape[1], (values.shape[0], 1), generator=generator)
        values = values.scatter(1, column, 1e4)
    return into(like, values.reshape(like.shape))


def _signed(sign: float) -> Draw:
    return lambda like, generator: into(like, _normal(like, generator).float().abs() * sign)


def _zero_rows(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Every other row zero."""
    return into(like, _by_row(_normal(like, generator).float(), (torch.arange(_rows(like)) % 2).float()))


def _with(value: float) -> Draw:
    """`value` as one element of every other row."""

    def draw(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        values = _normal(like, generator).float().reshape(_rows(like), -1).clone()
        if values.numel():
            values[::2, int(torch.randint(values.shape[1], (1,), generator=generator))] = value
        return into(like, values.reshape(like.shape))

    return draw


def _subnormal(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return into(like, _normal(like, generator).double() * torch.finfo(like.dtype).tiny / 256)


def _largest(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Half of the dtype's largest value up to all of it, of both signs."""
    normal = _normal(like, generator).double()
    share = 0.5 + 0.5 * torch.rand(like.shape, generator=generator, dtype=torch.float64)
    return into(like, normal.sign() * share * torch.finfo(like.dtype).max)


REGIMES: tuple[Regime, ...] = (
    Regime("mean square 1", _normal),
    Regime("mean square 1e-2", _scaled(1e-2)),
    Regime("mean square 1e2", _scaled(1e2)),
    Regime("gains of both signs", _gains),
    Regime("rows of mean square 1e-8 to 1e8", _rows_of_all_scales),
    Regime("one element of 1e4 in each row", _single_large),
    Regime("all negative", _signed(-1.0)),
    Regime("all positive", _signed(1.0)),
    Regime("rows of zeros", _zero_rows),
    Regime("rows with NaN", _with(float("nan")), finite=False),
    Regime("rows with Inf", _with(float("inf")), finite=False),
    Regime("rows with -Inf", _with(float("-inf")), finite=False),
    Regime("subnormal numbers", _subnormal),
    Regime(LARGEST, _largest),
)


def near(value: float) -> Regime:
    """Values on both sides of `value`: up to twice its magnitude, itself, and a little less and more."""

    def draw(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        size = abs(value) or 1.0
        values = value + size * (2 * torch.rand(like.shape, generator=generator, dtype=torch.float64) - 1) * 3
        flat = values.reshape(-1)
        for index, exact in enumerate((value, value * 0.99, value * 1.01, -value)):
            flat[index::7] = exact
        return into(like, flat.reshape(like.shape))

    return Regime(f"around {value:g}", draw)


def times(factor: float) -> Regime:
    """Normal values times `factor`."""
    return Regime(f"mean square {factor**2:g}", _scaled(factor**2))


def drawn(draw: Draw, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The regime's values for one argument; of a complex one, for its real and imaginary parts."""
    if like.is_complex():
        return torch.view_as_complex(draw(torch.view_as_real(like.resolve_conj()), generator))
    return draw(like, generator)


def masks(own: torch.Tensor, generator: torch.Generator) -> Iterator[tuple[str, torch.Tensor]]:
    """Bool values of several densities, and the inverse of the site's own."""
    for density in (0.1, 0.5, 0.9, 0.0, 1.0):
        yield f"{density:.0%} true", into(own, torch.rand(own.shape, generator=generator) < density)
    yield "inverse of its own", into(own, ~own)


def indices(
    own: torch.Tensor, sizes: Sequence[int], generator: torch.Generator
) -> Iterator[tuple[str, torch.Tensor]]:
    """Whole numbers over the range of the site's own values and below each of the `sizes`; its own in reverse."""
    least, most = (int(own.min()), int(own.max())) if own.numel() else (0, 0)
    ranges = [(least, most + 1), *((0, size) for size in sorted(set(sizes)) if size != most + 1 or least)]
    for low, high in ranges:
        values = torch.randint(low, high, tuple(own.shape), generator=generator)
        yield f"whole numbers from {low} to {high - 1}", into(own, values)
    yield "its own in reverse", into(own, own.flip(list(range(own.dim()))))


def _rows(like: torch.Tensor) -> int:
    return like.numel() // like.shape[-1] if like.dim() and like.shape[-1] else 1


def _by_row(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    width = values.shape[-1] if values.dim() else 1
    return (values.reshape(-1, width) * scale[:, None]).reshape(values.shape) if values.numel() else values


def into(like: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """`values` in the strides, dtype and device of `like`; a dim of stride 0 keeps its first value."""
    for dim, (size, stride) in enumerate(zip(like.shape, like.stride(), strict=True)):
        if size > 1 and stride == 0:
            values = values.narrow(dim, 0, 1)
    result = torch.empty_strided(
        values.shape, _contracted(like, values), dtype=like.dtype, device=like.device
    )
    return result.copy_(values.to(like.dtype)).expand(like.shape)


def _contracted(like: torch.Tensor, values: torch.Tensor) -> list[int]:
    return [1 if size == 1 else stride for size, stride in zip(values.shape, like.stride(), strict=True)]
