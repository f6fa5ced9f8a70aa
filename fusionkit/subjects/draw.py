"""Seeded values for parameters and inputs: the same on every device and, before rounding, in every dtype.

A gain of one or a bias of zero would hide a fusion that loses it, so no parameter keeps its neutral value.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

# Distance of a gain from one and of an offset from zero: visible after rounding to bfloat16.
NEAREST, FARTHEST = 0.06, 0.5

# Library, attribute of its model classes that lists the modules kept in float32, dtypes for which it applies, and form
# of the match: transformers matches a name anywhere, diffusers a whole component. Sources: diffusers 0.42
# models/modeling_utils.py from_pretrained; transformers 5.24 modeling_utils.py _get_dtype_plan.
_KEPT = (
    ("diffusers", "_keep_in_fp32_modules", (torch.bfloat16, torch.float16), r"(?:^|\.){name}(?:\.|$)"),
    ("transformers", "_keep_in_fp32_modules", (torch.float16,), "{name}"),
    ("transformers", "_keep_in_fp32_modules_strict", (torch.bfloat16, torch.float16), "{name}"),
)


@dataclass(frozen=True, slots=True)
class Draw:
    """Seeded random tensors on `device`; each depends on the seed, its label and its shape only.

    Values are drawn in float32 on the CPU, then rounded to the dtype and moved.
    """

    seed: int
    dtype: torch.dtype
    device: str = "cpu"

    def normal(self, label: str, shape: Sequence[int], std: float = 1.0) -> torch.Tensor:
        """Normal values with standard deviation `std`, in `self.dtype`."""
        return self._place(self._normal(label, shape) * std, self.dtype)

    def integers(self, label: str, shape: Sequence[int], high: int) -> torch.Tensor:
        """Uniform int64 values in [0, high)."""
        generator = self._generator(label)
        return self._place(torch.randint(high, tuple(shape), generator=generator, device="cpu"), torch.int64)

    def values(self, values: Sequence[Any], *, integer: bool = False) -> torch.Tensor:
        """The given numbers, in `self.dtype` or as int64."""
        dtype = torch.int64 if integer else torch.float32
        return self._place(
            torch.tensor(values, dtype=dtype, device="cpu"), torch.int64 if integer else self.dtype
        )

    def away_from(self, neutral: float, label: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Values at a distance of 0.06 to 0.5 from `neutral`, on both sides of it."""
        uniform = torch.rand(
            tuple(shape), generator=self._generator(label), dtype=torch.float32, device="cpu"
        )
        signed = 2 * uniform - 1
        side = torch.where(signed < 0, -1.0, 1.0)
        return self._place(neutral + side * (NEAREST + (FARTHEST - NEAREST) * signed.abs()), dtype)

    def matrix(self, label: str, shape: Sequence[int], fan_in: int, dtype: torch.dtype) -> torch.Tensor:
        """Normal values with variance 1 / fan_in, so that a matmul keeps the magnitude of its input."""
        return self._place(self._normal(label, shape) / math.sqrt(fan_in), dtype)

    def _normal(self, label: str, shape: Sequence[int]) -> torch.Tensor:
        generator = self._generator(label)
        return torch.randn(tuple(shape), generator=generator, dtype=torch.float32, device="cpu")

    def _generator(self, label: str) -> torch.Generator:
        digest = hashlib.sha256(f"{self.seed}/{label}".encode()).digest()
        return torch.Generator("cpu").manual_seed(int.from_bytes(digest[:8], "big") >> 1)

    def _place(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return tensor.to(dtype).to(self.device)


class FormDraw(Draw):
    """Draws under a fake mode: empty tensors of the right shape, dtype and device."""

    def normal(self, label: str, shape: Sequence[int], std: float = 1.0) -> torch.Tensor:
        """An empty tensor of this shape."""
        del label, std
        return self._empty(shape, self.dtype)

    def integers(self, label: str, shape: Sequence[int], high: int) -> torch.Tensor:
        """An empty int64 tensor of this shape."""
        del label, high
        return self._empty(shape, torch.int64)

    def away_from(self, neutral: float, label: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """An empty tensor of this shape."""
        del neutral, label
        return self._empty(shape, dtype)

    def matrix(self, label: str, shape: Sequence[int], fan_in: int, dtype: torch.dtype) -> torch.Tensor:
        """An empty tensor of this shape."""
        del label, fan_in
        return self._empty(shape, dtype)

    def _empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(tuple(shape), dtype=dtype, device=self.device)


def draw_parameters(model: nn.Module, draw: Draw, *, requires_grad: bool) -> None:
    """Replace every floating-point parameter of `model` by a drawn one; ties and modules kept in float32 are preserved.

    A vector named `weight` is a gain (around 1), any other vector an offset (around 0), anything with two
    or more dimensions a matrix. `model` was built under `draw.dtype` as default dtype.
    """
    kept = _kept_in_fp32(model, draw.dtype)
    drawn: dict[nn.Parameter, nn.Parameter] = {}
    for path, module in model.named_modules():
        for name, old in module._parameters.items():
            if old is None or not old.is_floating_point():
                continue
            if old not in drawn:
                full_name = f"{path}.{name}".lstrip(".")
                dtype = torch.float32 if kept is not None and kept.search(full_name) else old.dtype
                value = _draw_parameter(module, name, old, draw, full_name, dtype)
                drawn[old] = nn.Parameter(value, requires_grad=requires_grad)
            module._parameters[name] = drawn[old]


def _draw_parameter(
    module: nn.Module, name: str, old: nn.Parameter, draw: Draw, label: str, dtype: torch.dtype
) -> torch.Tensor:
    shape = tuple(old.shape)
    if isinstance(module, nn.Embedding):
        return draw.matrix(label, shape, 1, dtype)
    if len(shape) >= 2:
        return draw.matrix(label, shape, _fan_in(module, shape), dtype)
    return draw.away_from(1.0 if name == "weight" else 0.0, label, shape, dtype)


def _fan_in(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Number of products per output element: the size of all axes but the first; of stacked expert weights one axis.

    transformers' experts are (experts, out, in), or (experts, in, out) with `is_transposed`.
    """
    if len(shape) == 3 and not isinstance(module, nn.Conv1d):
        return shape[-2] if getattr(module, "is_transposed", False) else shape[-1]
    return math.prod(shape[1:])


def _kept_in_fp32(model: nn.Module, dtype: torch.dtype) -> re.Pattern[str] | None:
    """A regular expression for the parameters that stay float32 if `model` is loaded in `dtype`."""
    libraries = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    branches = []
    for library, attribute, dtypes, form in _KEPT:
        if library in libraries and dtype in dtypes:
            names = getattr(model, attribute, None) or ()
            branches += [form.format(name=re.escape(name).replace(r"\*", ".*")) for name in sorted(names)]
    return re.compile("|".join(branches)) if branches else None
