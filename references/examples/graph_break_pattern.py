"""0 hits, and a norm that stands in no graph as a whole. The compiler breaks the graph where the code looks at a value
(`item()`, `print`, a branch on a tensor). What stands before and what stands behind are two graphs, and the matcher sees one at
a time.

Take what breaks the graph out of the site's code, or move it before or behind the site. No pattern file mends that.
"""

from __future__ import annotations

import torch

from fusionkit.patterns import PatternBase


class GraphBreakPattern:
    """An RMSNorm written by hand, right as such."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations and gain of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"GraphBreakPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                x = torch.empty(2, 4, 16, dtype=dtype, device="meta")
                return [x, torch.empty(16, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                mean = x.pow(2).mean(-1, keepdim=True)
                return x * torch.rsqrt(mean + 1e-6) * weight

            @staticmethod
            def replacement(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                return torch.ops.npu.npu_rms_norm(x, weight, 1e-6)[0]  # type: ignore[no-any-return]

        return Pattern


GraphBreakPatternGroup = [GraphBreakPattern.create(torch.bfloat16)]
