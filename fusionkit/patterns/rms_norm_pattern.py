"""RMSNorm -> npu_rms_norm: the decomposed torch.nn.RMSNorm and the hand-written forms of the model libraries.

The op computes in float32 and rounds once, at the end; the written forms may round in between.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fusionkit.patterns.pattern_base import PatternBase


class _FusedRmsNormPattern(PatternBase):
    """What the variants share: eps is read from the graph, and the op takes x, the gain and eps."""

    @staticmethod
    def scalars() -> dict[str, float]:
        return {"eps": 0.0113377}

    @staticmethod
    def replacement(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
        return torch.ops.npu.npu_rms_norm(x, weight, eps)[0]  # type: ignore[no-any-return]


class RmsNormPattern:
    """torch.nn.RMSNorm as AOT decomposes it: mean over a positive dim, add.Scalar, gain, then the cast back."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations and gain of `dtype` (the casts vanish for float32)."""

        class Pattern(_FusedRmsNormPattern):
            @staticmethod
            def name() -> str:
                return f"RmsNormPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[Tensor]:
                return [torch.empty(2, 4, 8, 16, dtype=dtype, device="meta"), _gain(dtype)]

            @staticmethod
            def pattern(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
                h = x.to(torch.float32)
                variance = torch.ops.aten.mean.dim(h.pow(2), [x.dim() - 1], True)
                scale = torch.rsqrt(torch.ops.aten.add.Scalar(variance, eps))
                return (h * scale * weight).to(x.dtype)

        return Pattern


class OfViewRmsNormPattern:
    """torch.nn.RMSNorm on a view that is not contiguous: torch makes the result contiguous before the cast back."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations and gain of `dtype` (the casts vanish for float32)."""

        class Pattern(_FusedRmsNormPattern):
            @staticmethod
            def name() -> str:
                return f"OfViewRmsNormPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[Tensor]:
                return [torch.empty(2, 4, 8, 16, dtype=dtype, device="meta").transpose(1, 2), _gain(dtype)]

            @staticmethod
            def pattern(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
                h = x.to(torch.float32)
                variance = torch.ops.aten.mean.dim(h.pow(2), [x.dim() - 1], True)
                scale = torch.rsqrt(torch.ops.aten.add.Scalar(variance, eps))
                whole: Tensor = torch.ops.aten.clone.default(
                    h * scale * weight, memory_format=torch.contiguous_format
                )
                return whole.to(x.dtype)

        return Pattern


class HandWrittenRmsNormPattern:
    """The norm of transformers' Llama: mean over -1, add.Tensor, cast back, gain last and on the left."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations and gain of `dtype`."""

        class Pattern(_FusedRmsNormPattern):
            @staticmethod
            def name() -> str:
                return f"HandWrittenRmsNormPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[Tensor]:
                return [torch.empty(2, 4, 16, dtype=dtype, device="meta"), _gain(dtype)]

            @staticmethod
            def pattern(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
                h = x.to(torch.float32)
                variance = h.pow(2).mean(-1, keepdim=True)
                h = h * torch.rsqrt(variance + eps)
                return weight * h.to(x.dtype)

        return Pattern


class GainLastRmsNormPattern:
    """diffusers' RMSNorm: x itself, not its float32 copy, is scaled; cast back, gain last and on the right."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations and gain of `dtype`."""

        class Pattern(_FusedRmsNormPattern):
            @staticmethod
            def name() -> str:
                return f"GainLastRmsNormPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[Tensor]:
                return [torch.empty(2, 4, 16, dtype=dtype, device="meta"), _gain(dtype)]

            @staticmethod
            def pattern(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
                variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
                return (x * torch.rsqrt(variance + eps)).to(x.dtype) * weight

        return Pattern


class CastLastRmsNormPattern:
    """The norm of transformers' gpt-oss: gain on the left, multiplied in float32, then the cast back."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations and gain of `dtype`, a half precision."""

        class Pattern(_FusedRmsNormPattern):
            @staticmethod
            def name() -> str:
                return f"CastLastRmsNormPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[Tensor]:
                return [torch.empty(2, 4, 16, dtype=dtype, device="meta"), _gain(dtype)]

            @staticmethod
            def pattern(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
                h = x.to(torch.float32)
                h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)
                return (weight * h).to(x.dtype)

        return Pattern


class OnePlusGainRmsNormPattern:
    """The norm of transformers' Gemma 3: the gain is 1 + weight, in float32, then the cast back."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations and weight of `dtype`; the op's gamma is float32, whatever they are."""

        class Pattern(_FusedRmsNormPattern):
            @staticmethod
            def name() -> str:
                return f"OnePlusGainRmsNormPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[Tensor]:
                return [torch.empty(2, 4, 16, dtype=dtype, device="meta"), _gain(dtype)]

            @staticmethod
            def pattern(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
                h = x.float()
                h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)
                return (h * (1.0 + weight.float())).to(x.dtype)

            @staticmethod
            def replacement(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
                gamma = 1.0 + weight.float()
                return torch.ops.npu.npu_rms_norm(x, gamma, eps)[0]  # type: ignore[no-any-return]

        return Pattern


def _gain(dtype: torch.dtype) -> Tensor:
    return torch.empty(16, dtype=dtype, device="meta")


RmsNormPatternGroup = [
    *(
        factory.create(dtype)
        for dtype in (torch.bfloat16, torch.float32)
        for factory in (
            RmsNormPattern,
            HandWrittenRmsNormPattern,
            GainLastRmsNormPattern,
            OfViewRmsNormPattern,
        )
    ),
    CastLastRmsNormPattern.create(torch.bfloat16),
    OnePlusGainRmsNormPattern.create(torch.bfloat16),
]
