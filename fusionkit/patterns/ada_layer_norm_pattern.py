"""Adaptive layer norm (no affine), modulated by scale and shift -> the kit's op layer_norm_scale_shift.

torch_npu has no such op; on an NPU the kit's op calls mindiesd.layernorm_scale_shift where that is installed.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fusionkit.patterns.pattern_base import PatternBase


class _FusedAdaLayerNormPattern(PatternBase):
    """What the variants share: eps is read from the graph, and the op broadcasts scale and shift [B, 1, D]."""

    @staticmethod
    def scalars() -> dict[str, float]:
        return {"eps": 0.0113377}

    @staticmethod
    def replacement(x: Tensor, scale: Tensor, shift: Tensor, eps: float = 1e-6) -> Tensor:
        return torch.ops.fusionkit.layer_norm_scale_shift(x, scale, shift, eps)  # type: ignore[no-any-return]


class _VectorAdaLayerNormPattern(_FusedAdaLayerNormPattern):
    """What the variants with scale and shift [B, D] share."""

    @staticmethod
    def replacement(x: Tensor, scale: Tensor, shift: Tensor, eps: float = 1e-6) -> Tensor:
        return _FusedAdaLayerNormPattern.replacement(x, scale.unsqueeze(1), shift.unsqueeze(1), eps)


class AdaLayerNormPattern:
    """norm(x) * (1 + scale[:, None]) + shift[:, None]: AdaLayerNormZero and FLUX's inline norm2."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for x [B, S, D], scale and shift [B, D], all of `dtype`."""

        class Pattern(_VectorAdaLayerNormPattern):
            @staticmethod
            def name() -> str:
                return f"AdaLayerNormPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[Tensor]:
                return _inputs(dtype, (2, 16))

            @staticmethod
            def pattern(x: Tensor, scale: Tensor, shift: Tensor, eps: float = 1e-6) -> Tensor:
                normed = F.layer_norm(x, [x.shape[-1]], None, None, eps)
                return normed * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)

        return Pattern


class AdaLayerNormContinuousPattern:
    """norm(x) * (1 + scale)[:, None, :] + shift[:, None, :]: the unsqueeze comes after the addition."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for x [B, S, D], scale and shift [B, D], all of `dtype`."""

        class Pattern(_VectorAdaLayerNormPattern):
            @staticmethod
            def name() -> str:
                return f"AdaLayerNormContinuousPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[Tensor]:
                return _inputs(dtype, (2, 16))

            @staticmethod
            def pattern(x: Tensor, scale: Tensor, shift: Tensor, eps: float = 1e-6) -> Tensor:
                normed = F.layer_norm(x, [x.shape[-1]], None, None, eps)
                return normed * (1 + scale).unsqueeze(1) + shift.unsqueeze(1)

        return Pattern


class AdaLayerNormBroadcastPattern:
    """norm(x) * (1 + scale) + shift: FLUX.2's norm2; scale and shift already have a sequence dim."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for x [B, S, D], scale and shift [B, 1, D], all of `dtype`."""

        class Pattern(_FusedAdaLayerNormPattern):
            @staticmethod
            def name() -> str:
                return f"AdaLayerNormBroadcastPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[Tensor]:
                return _inputs(dtype, (2, 1, 16))

            @staticmethod
            def pattern(x: Tensor, scale: Tensor, shift: Tensor, eps: float = 1e-6) -> Tensor:
                return F.layer_norm(x, [x.shape[-1]], None, None, eps) * (1 + scale) + shift

        return Pattern


class AdaLayerNormScaleFirstPattern:
    """(1 + scale) * norm(x) + shift: FLUX.2's other norms; scale and shift already have a sequence dim."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for x [B, S, D], scale and shift [B, 1, D], all of `dtype`."""

        class Pattern(_FusedAdaLayerNormPattern):
            @staticmethod
            def name() -> str:
                return f"AdaLayerNormScaleFirstPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[Tensor]:
                return _inputs(dtype, (2, 1, 16))

            @staticmethod
            def pattern(x: Tensor, scale: Tensor, shift: Tensor, eps: float = 1e-6) -> Tensor:
                return (1 + scale) * F.layer_norm(x, [x.shape[-1]], None, None, eps) + shift

        return Pattern


def _inputs(dtype: torch.dtype, modulation: tuple[int, ...]) -> list[Tensor]:
    return [torch.empty(shape, dtype=dtype, device="meta") for shape in ((2, 4, 16), modulation, modulation)]


AdaLayerNormPatternGroup = [
    AdaLayerNormPattern.create(torch.bfloat16),
    AdaLayerNormContinuousPattern.create(torch.bfloat16),
    AdaLayerNormBroadcastPattern.create(torch.bfloat16),
    AdaLayerNormScaleFirstPattern.create(torch.bfloat16),
]
