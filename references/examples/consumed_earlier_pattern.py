"""Fewer hits than before, since another fusion was enabled or moved forward: it is matched first and rewrites nodes of the site.
Here a fusion of the scale alone precedes the whole norm.

Register the longer fusion before the shorter one, or leave the shorter one out.
"""

from __future__ import annotations

import torch

from fusionkit.patterns import PatternBase

aten = torch.ops.aten


class ScaleConsumedEarlierPattern:
    """The inner part of it."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for means of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"ScaleConsumedEarlierPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                return [torch.empty(2, 4, 1, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(mean: torch.Tensor) -> torch.Tensor:
                return torch.rsqrt(aten.add.Scalar(mean, 9.999999974752427e-07))

            @staticmethod
            def replacement(mean: torch.Tensor) -> torch.Tensor:
                return torch.reciprocal(torch.sqrt(mean + 9.999999974752427e-07))

        return Pattern


class ConsumedEarlierPattern:
    """An RMSNorm, right as such."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations and gain of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"ConsumedEarlierPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                x = torch.empty(2, 4, 16, dtype=dtype, device="meta")
                return [x, torch.empty(16, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                h = x.to(torch.float32)
                mean = aten.mean.dim(h.pow(2), [x.dim() - 1], True)
                scale = torch.rsqrt(aten.add.Scalar(mean, 9.999999974752427e-07))
                return (h * scale * weight).to(x.dtype)

            @staticmethod
            def replacement(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                return torch.ops.npu.npu_rms_norm(x, weight, 1e-6)[0]  # type: ignore[no-any-return]

        return Pattern


ConsumedEarlierPatternGroup = [
    ScaleConsumedEarlierPattern.create(torch.float32),
    ConsumedEarlierPattern.create(torch.bfloat16),
]
