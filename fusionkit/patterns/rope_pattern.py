"""Rotary position embedding -> npu_rotary_mul: FLUX's interleaved form and the half form of transformers."""

from __future__ import annotations

import torch

from fusionkit.patterns.pattern_base import PatternBase


class InterleavedRopePattern:
    """diffusers' apply_rotary_emb(use_real): pairs (0,1), (2,3), ... rotate; tables and product in float32."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations of `dtype`; cos and sin are float32, [1, S, 1, D] beside x [B, S, N, D]."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"InterleavedRopePattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                table = torch.empty(1, 6, 1, 16, dtype=torch.float32, device="meta")
                return [torch.empty(2, 6, 4, 16, dtype=dtype, device="meta"), table, torch.empty_like(table)]

            @staticmethod
            def pattern(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
                real, imaginary = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
                rotated = torch.stack([-imaginary, real], dim=-1).flatten(3)
                return (x.float() * cos + rotated.float() * sin).to(x.dtype)

            @staticmethod
            def replacement(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
                rotated: torch.Tensor = torch.ops.npu.npu_rotary_mul(x.float(), cos, sin, "interleave")
                return rotated.to(x.dtype)

        return Pattern


class HalfRopePattern:
    """transformers' x*cos + rotate_half(x)*sin: the two halves of the last dim rotate, all in x's dtype."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for x [B, N, S, D], cos and sin [B, 1, S, D], all of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"HalfRopePattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                table = torch.empty(2, 1, 6, 16, dtype=dtype, device="meta")
                return [torch.empty(2, 4, 6, 16, dtype=dtype, device="meta"), table, torch.empty_like(table)]

            @staticmethod
            def pattern(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
                first = x[..., : x.shape[-1] // 2]
                second = x[..., x.shape[-1] // 2 :]
                return (x * cos) + (torch.cat((-second, first), dim=-1) * sin)

            @staticmethod
            def replacement(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
                return torch.ops.npu.npu_rotary_mul(x, cos, sin, "half")  # type: ignore[no-any-return]

        return Pattern


RopePatternGroup = [
    factory.create(dtype)
    for dtype in (torch.bfloat16, torch.float32)
    for factory in (InterleavedRopePattern, HalfRopePattern)
]
