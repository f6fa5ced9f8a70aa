"""GELU with the tanh approximation -> npu_gelu(approximate="tanh"); npu_fast_gelu is another function."""

from __future__ import annotations

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


GeluPatternGroup = [GeluPattern.create(torch.bfloat16)]
