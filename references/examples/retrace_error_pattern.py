"""0 hits, while the unit test passes: the site's rank or size differs from that of `inputs()`, and the search function raises
when the matcher traces it again there. torch ignores the error.

Write the search part for any rank and size: `x.shape[-1]`, `x.dim() - 1`, `x.shape[:-1]`.
"""

from __future__ import annotations

import torch

from fusionkit.patterns import PatternBase

aten = torch.ops.aten


class RetraceErrorPattern:
    """An RMSNorm that takes the input to have four dims."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations and gain of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"RetraceErrorPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                x = torch.empty(2, 4, 8, 16, dtype=dtype, device="meta")
                return [x, torch.empty(16, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                h = x.to(torch.float32)
                assert x.dim() == 4, "batch, heads, length, size"
                mean = aten.mean.dim(h.pow(2), [3], True)
                scale = torch.rsqrt(aten.add.Scalar(mean, 9.999999974752427e-07))
                return (h * scale * weight).to(x.dtype)

            @staticmethod
            def replacement(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                return torch.ops.npu.npu_rms_norm(x, weight, 1e-6)[0]  # type: ignore[no-any-return]

        return Pattern


RetraceErrorPatternGroup = [RetraceErrorPattern.create(torch.bfloat16)]
