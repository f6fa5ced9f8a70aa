"""GELU with the tanh approximation -> npu_gelu(approximate="tanh"); npu_fast_gelu is another function."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from fusionkit.patterns.pattern_base import PatternBase


class GeluPattern:
    """One aten.gelu node whose `approximate` is "tanh"."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"GeluPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                return [torch.empty(2, 4, 16, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor) -> torch.Tensor:
                return F.gelu(x, approximate="tanh")

            @staticmethod
            def replacement(x: torch.Tensor) -> torch.Tensor:
                return torch.ops.npu.npu_gelu(x, approximate="tanh")  # type: ignore[no-any-return]

        return Pattern


class HandWrittenGeluPattern:
    """transformers' NewGELUActivation: the tanh formula written out, each step in x's dtype."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"HandWrittenGeluPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                return [torch.empty(2, 4, 16, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor) -> torch.Tensor:
                inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
                return 0.5 * x * (1.0 + torch.tanh(inner))

            @staticmethod
            def replacement(x: torch.Tensor) -> torch.Tensor:
                return torch.ops.npu.npu_gelu(x, approximate="tanh")  # type: ignore[no-any-return]

        return Pattern


GeluPatternGroup = [
    GeluPattern.create(torch.bfloat16),
    HandWrittenGeluPattern.create(torch.bfloat16),
]
