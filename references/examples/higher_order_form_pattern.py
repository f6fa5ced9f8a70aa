"""0 hits for a pattern with a mutating op. AOT autograd puts such an op into one of two functional forms: torch 2.13's graphs
have `auto_functionalized_v2`, while files written for older versions have `auto_functionalized`.

Call the mutating op itself, as the model does: the pattern's trace then has the same form as the graph, on every torch version.
"""

from __future__ import annotations

import small_models  # noqa: F401  (defines the op)
import torch
from torch._higher_order_ops.auto_functionalize import auto_functionalized

from fusionkit.patterns import PatternBase


class HigherOrderFormPattern:
    """A mutating op, written in its older functional form, and an activation."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for tensors of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"HigherOrderFormPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                x = torch.empty(2, 16, dtype=dtype, device="meta")
                return [x, x]

            @staticmethod
            def pattern(x: torch.Tensor, half: torch.Tensor) -> torch.Tensor:
                halve = torch.ops.small_models.halve_.default
                return torch.tanh(auto_functionalized(halve, half=half, x=x)[1])

            @staticmethod
            def replacement(x: torch.Tensor, half: torch.Tensor) -> torch.Tensor:
                return torch.tanh(x / 2)

        return Pattern


HigherOrderFormPatternGroup = [HigherOrderFormPattern.create(torch.bfloat16)]
