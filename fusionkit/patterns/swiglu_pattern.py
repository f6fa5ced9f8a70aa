"""SwiGLU with two linears, silu(x @ gate.T) * (x @ up.T) -> one linear over both weights, then npu_swiglu."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from fusionkit.patterns.pattern_base import PatternBase


class SwigluPattern:
    """Llama's MLP: npu_swiglu activates the FIRST half, so the gate's weight comes first."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for x [B, S, H], gate and up [F, H], all of `dtype`; no biases."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"SwigluPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                weight = torch.empty(24, 16, dtype=dtype, device="meta")
                return [torch.empty(2, 4, 16, dtype=dtype, device="meta"), weight, torch.empty_like(weight)]

            @staticmethod
            def pattern(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
                return F.silu(F.linear(x, gate)) * F.linear(x, up)

            @staticmethod
            def replacement(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
                both = F.linear(x, torch.cat([gate, up], dim=0))
                return torch.ops.npu.npu_swiglu(both, -1)  # type: ignore[no-any-return]

        return Pattern


SwigluPatternGroup = [SwigluPattern.create(torch.bfloat16)]
