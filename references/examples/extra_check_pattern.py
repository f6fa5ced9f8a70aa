"""The matcher matches the site and nothing is rewritten: the replacement does not fit. It raises there, gives another shape or
dtype, or violates a documented limit of its op. Here the pattern begins after the cast, so the op would get a float32 input
with a bfloat16 gain. Without this check the model would run with wrong numbers, or lose the benefit of the fusion.

Correct the fault that the reason names. Here: begin the pattern before the cast.
"""

from __future__ import annotations

import torch

from fusionkit.patterns import PatternBase

aten = torch.ops.aten


class ExtraCheckPattern:
    """An RMSNorm that begins behind the cast."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations and gain of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"ExtraCheckPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                x = torch.empty(2, 4, 16, dtype=dtype, device="meta")
                return [x, torch.empty(16, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                h = x
                mean = aten.mean.dim(h.pow(2), [x.dim() - 1], True)
                scale = torch.rsqrt(aten.add.Scalar(mean, 9.999999974752427e-07))
                return (h * scale * weight).to(x.dtype)

            @staticmethod
            def replacement(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                return torch.ops.npu.npu_rms_norm(x, weight, 1e-6)[0]  # type: ignore[no-any-return]

        return Pattern


ExtraCheckPatternGroup = [ExtraCheckPattern.create(torch.bfloat16)]
