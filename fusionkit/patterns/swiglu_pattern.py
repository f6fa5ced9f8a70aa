"""SwiGLU -> npu_swiglu, which activates the FIRST half of its input and multiplies it by the second half.

Two linears, silu(x @ gate.T) * (x @ up.T), become one with the concatenated weight; one linear stays as it is, but
the halves of its weight change places where the gate is the second half.
"""

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


class ChunkedSwigluPattern:
    """The experts of transformers: silu(gate) * up, the halves of one product, by chunk."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for x [B, S, 2F] of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"ChunkedSwigluPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                return [torch.empty(2, 4, 16, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor) -> torch.Tensor:
                gate, up = x.chunk(2, dim=-1)
                return F.silu(gate) * up

            @staticmethod
            def replacement(x: torch.Tensor) -> torch.Tensor:
                return torch.ops.npu.npu_swiglu(x, -1)  # type: ignore[no-any-return]

        return Pattern


class UpFirstSwigluPattern:
    """GLM-4's MLP: up * silu(gate), the halves of one product, by chunk."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for x [B, S, 2F] of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"UpFirstSwigluPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                return [torch.empty(2, 4, 16, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor) -> torch.Tensor:
                gate, up = x.chunk(2, dim=-1)
                return up * F.silu(gate)

            @staticmethod
            def replacement(x: torch.Tensor) -> torch.Tensor:
                return torch.ops.npu.npu_swiglu(x, -1)  # type: ignore[no-any-return]

        return Pattern


class SlicedSwigluPattern:
    """FLUX.2: silu(gate) * up, the halves of one product, by slices."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for x [B, S, 2F] of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"SlicedSwigluPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                return [torch.empty(2, 4, 16, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor) -> torch.Tensor:
                half = x.shape[-1] // 2
                return F.silu(x[..., :half]) * x[..., half:]

            @staticmethod
            def replacement(x: torch.Tensor) -> torch.Tensor:
                return torch.ops.npu.npu_swiglu(x, -1)  # type: ignore[no-any-return]

        return Pattern


class GateSecondSwigluPattern:
    """diffusers' SwiGLU: the gate is the second half of the linear's output, so the weight's halves change places."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for x [B, S, H] and weight [2F, H], up first, of `dtype`; no bias."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"GateSecondSwigluPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                weight = torch.empty(24, 16, dtype=dtype, device="meta")
                return [torch.empty(2, 4, 16, dtype=dtype, device="meta"), weight]

            @staticmethod
            def pattern(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                up, gate = F.linear(x, weight).chunk(2, dim=-1)
                return up * F.silu(gate)

            @staticmethod
            def replacement(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                up, gate = weight.chunk(2, dim=0)
                both = F.linear(x, torch.cat([gate, up], dim=0))
                return torch.ops.npu.npu_swiglu(both, -1)  # type: ignore[no-any-return]

        return Pattern


SwigluPatternGroup = [
    factory.create(torch.bfloat16)
    for factory in (
        SwigluPattern,
        GateSecondSwigluPattern,
        ChunkedSwigluPattern,
        UpFirstSwigluPattern,
        SlicedSwigluPattern,
    )
]
