"""0 hits, or hits in float32 only. A cast is on one side only, at another place, or to another dtype.
In float32 such a cast vanishes from the trace, so that a unit test in float32 does not detect it.

Put the cast where the graph has it. Keep the output's cast in the pattern: it marks the end of the site.
"""

from __future__ import annotations

import torch

from fusionkit.patterns import PatternBase

aten = torch.ops.aten


class DtypePathPattern:
    """An RMSNorm that casts back before the gain."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations and gain of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"DtypePathPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                x = torch.empty(2, 4, 16, dtype=dtype, device="meta")
                return [x, torch.empty(16, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                h = x.to(torch.float32)
                mean = aten.mean.dim(h.pow(2), [x.dim() - 1], True)
                scale = torch.rsqrt(aten.add.Scalar(mean, 9.999999974752427e-07))
                return (h * scale).to(x.dtype) * weight

            @staticmethod
            def replacement(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                return torch.ops.npu.npu_rms_norm(x, weight, 1e-6)[0]  # type: ignore[no-any-return]

        return Pattern


DtypePathPatternGroup = [DtypePathPattern.create(torch.bfloat16)]
