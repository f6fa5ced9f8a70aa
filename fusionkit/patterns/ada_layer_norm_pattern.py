"""Adaptive layer norm (no affine), modulated by scale and shift -> the kit's op layer_norm_scale_shift.

torch_npu has no such op; on an NPU the kit's op calls mindiesd.layernorm_scale_shift where that is installed.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from fusionkit.patterns.pattern_base import PatternBase

_EPS_STAND_IN = 0.0113377


class AdaLayerNormPattern:
    """norm(x) * (1 + scale[:, None]) + shift[:, None]: AdaLayerNormZero and FLUX's inline norm2."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for x [B, S, D], scale and shift [B, D], all of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"AdaLayerNormPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                return _inputs(dtype)

            @staticmethod
            def scalars() -> dict[str, float]:
                return {"eps": _EPS_STAND_IN}

            @staticmethod
            def pattern(
                x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, eps: float = 1e-6
            ) -> torch.Tensor:
                normed = F.layer_norm(x, [x.shape[-1]], None, None, eps)
                return normed * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)

            @staticmethod
            def replacement(
                x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, eps: float = 1e-6
            ) -> torch.Tensor:
                return _fused(x, scale, shift, eps)

        return Pattern


class AdaLayerNormContinuousPattern:
    """norm(x) * (1 + scale)[:, None, :] + shift[:, None, :]: the unsqueeze comes after the addition."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for x [B, S, D], scale and shift [B, D], all of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"AdaLayerNormContinuousPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                return _inputs(dtype)

            @staticmethod
            def scalars() -> dict[str, float]:
                return {"eps": _EPS_STAND_IN}

            @staticmethod
            def pattern(
                x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, eps: float = 1e-6
            ) -> torch.Tensor:
                normed = F.layer_norm(x, [x.shape[-1]], None, None, eps)
                return normed * (1 + scale).unsqueeze(1) + shift.unsqueeze(1)

            @staticmethod
            def replacement(
                x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, eps: float = 1e-6
            ) -> torch.Tensor:
                return _fused(x, scale, shift, eps)

        return Pattern


class AdaLayerNormBroadcastPattern:
    """norm(x) * (1 + scale) + shift: FLUX.2's norm2; scale and shift already have a sequence dim."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for x [B, S, D], scale and shift [B, 1, D], all of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"AdaLayerNormBroadcastPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                x, scale, shift = _inputs(dtype)
                return [x, scale.unsqueeze(1), shift.unsqueeze(1)]

            @staticmethod
            def scalars() -> dict[str, float]:
                return {"eps": _EPS_STAND_IN}

            @staticmethod
            def pattern(
                x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, eps: float = 1e-6
            ) -> torch.Tensor:
                return F.layer_norm(x, [x.shape[-1]], None, None, eps) * (1 + scale) + shift

            @staticmethod
            def replacement(
                x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, eps: float = 1e-6
            ) -> torch.Tensor:
                return torch.ops.fusionkit.layer_norm_scale_shift(  # type: ignore[no-any-return]
                    x, scale, shift, eps
                )

        return Pattern


class AdaLayerNormScaleFirstPattern:
    """(1 + scale) * norm(x) + shift: FLUX.2's other norms; scale and shift already have a sequence dim."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for x [B, S, D], scale and shift [B, 1, D], all of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"AdaLayerNormScaleFirstPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                x, scale, shift = _inputs(dtype)
                return [x, scale.unsqueeze(1), shift.unsqueeze(1)]

            @staticmethod
            def scalars() -> dict[str, float]:
                return {"eps": _EPS_STAND_IN}

            @staticmethod
            def pattern(
                x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, eps: float = 1e-6
            ) -> torch.Tensor:
                return (1 + scale) * F.layer_norm(x, [x.shape[-1]], None, None, eps) + shift

            @staticmethod
            def replacement(
                x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, eps: float = 1e-6
            ) -> torch.Tensor:
                return torch.ops.fusionkit.layer_norm_scale_shift(  # type: ignore[no-any-return]
                    x, scale, shift, eps
                )

        return Pattern


def _inputs(dtype: torch.dtype) -> list[torch.Tensor]:
    modulation = torch.empty(2, 16, dtype=dtype, device="meta")
    x = torch.empty(2, 4, 16, dtype=dtype, device="meta")
    return [x, modulation, torch.empty_like(modulation)]


def _fused(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.ops.fusionkit.layer_norm_scale_shift(  # type: ignore[no-any-return]
        x, scale.unsqueeze(1), shift.unsqueeze(1), eps
    )


AdaLayerNormPatternGroup = [
    AdaLayerNormPattern.create(torch.bfloat16),
    AdaLayerNormContinuousPattern.create(torch.bfloat16),
    AdaLayerNormBroadcastPattern.create(torch.bfloat16),
    AdaLayerNormScaleFirstPattern.create(torch.bfloat16),
]
