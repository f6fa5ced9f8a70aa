"""Rotary position embedding -> npu_rotary_mul: the interleaved and the half forms of the model libraries.

The op rotates its whole last dim, by tables of the same width. A model that rotates a part of each head slices
that part out itself; a table of half the width is concatenated with itself.
"""

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


class ChunkedHalfRopePattern:
    """MiniMax-H3's rotate_half: as the half form, but the halves come from chunk."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for x [B, S, N, D], cos and sin [1, S, 1, D], all of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"ChunkedHalfRopePattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                table = torch.empty(1, 6, 1, 16, dtype=dtype, device="meta")
                return [torch.empty(2, 6, 4, 16, dtype=dtype, device="meta"), table, torch.empty_like(table)]

            @staticmethod
            def pattern(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
                first, second = x.chunk(2, dim=-1)
                return x * cos + torch.cat((-second, first), dim=-1) * sin

            @staticmethod
            def replacement(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
                return torch.ops.npu.npu_rotary_mul(x, cos, sin, "half")  # type: ignore[no-any-return]

        return Pattern


class HalfTableRopePattern:
    """gpt-oss: the halves rotate by tables that are half as wide as x, without a negation."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for x [B, N, S, D], cos and sin [B, 1, S, D/2], all of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"HalfTableRopePattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                table = torch.empty(2, 1, 6, 8, dtype=dtype, device="meta")
                return [torch.empty(2, 4, 6, 16, dtype=dtype, device="meta"), table, torch.empty_like(table)]

            @staticmethod
            def pattern(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
                first, second = x.chunk(2, dim=-1)
                return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

            @staticmethod
            def replacement(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
                cos, sin = torch.cat((cos, cos), dim=-1), torch.cat((sin, sin), dim=-1)
                return torch.ops.npu.npu_rotary_mul(x, cos, sin, "half")  # type: ignore[no-any-return]

        return Pattern


class EvenOddRopePattern:
    """DeepSeek-V3: pairs (0,1), (2,3), ... rotate and leave as halves, by tables half as wide as x."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for x [B, N, S, D], cos and sin [B, 1, S, D/2], all of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"EvenOddRopePattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                table = torch.empty(2, 1, 6, 8, dtype=dtype, device="meta")
                return [torch.empty(2, 4, 6, 16, dtype=dtype, device="meta"), table, torch.empty_like(table)]

            @staticmethod
            def pattern(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
                even, odd = x[..., 0::2], x[..., 1::2]
                return torch.cat([even * cos - odd * sin, odd * cos + even * sin], dim=-1)

            @staticmethod
            def replacement(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
                halves = torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1)
                cos, sin = torch.cat((cos, cos), dim=-1), torch.cat((sin, sin), dim=-1)
                return torch.ops.npu.npu_rotary_mul(halves, cos, sin, "half")  # type: ignore[no-any-return]

        return Pattern


class SlicedInterleavedRopePattern:
    """GLM-4 and GPT-J: pairs (0,1), (2,3), ... rotate, taken by slices; all in x's dtype."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for x [1, N, S, D] or [1, S, N, D], cos and sin with N of 1, all of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"SlicedInterleavedRopePattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                table = torch.empty(1, 1, 6, 16, dtype=dtype, device="meta")
                return [torch.empty(1, 4, 6, 16, dtype=dtype, device="meta"), table, torch.empty_like(table)]

            @staticmethod
            def pattern(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
                even, odd = x[..., 0::2], x[..., 1::2]
                rotated = torch.stack((-odd, even), dim=-1).flatten(-2)
                return (x * cos) + (rotated * sin)

            @staticmethod
            def replacement(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
                return torch.ops.npu.npu_rotary_mul(x, cos, sin, "interleave")  # type: ignore[no-any-return]

        return Pattern


RopePatternGroup = [
    *(
        factory.create(dtype)
        for dtype in (torch.bfloat16, torch.float32)
        for factory in (InterleavedRopePattern, HalfRopePattern)
    ),
    ChunkedHalfRopePattern.create(torch.bfloat16),
    HalfTableRopePattern.create(torch.bfloat16),
    EvenOddRopePattern.create(torch.bfloat16),
    SlicedInterleavedRopePattern.create(torch.bfloat16),
]
