"""0 hits, and the matcher examined no node: the op that ends the pattern, from which the matcher starts, does not occur in the
graph. Either the pattern is for another model, or a compile pass removed the op.

Dump the graph (`fusionkit capture SUBJECT --out FILE.json`) and end the pattern in an op of the graph.
"""

from __future__ import annotations

import torch

from fusionkit.patterns import PatternBase

aten = torch.ops.aten


class RootNotIndexedPattern:
    """An RMSNorm with the clamp that float16 models put behind it."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations and gain of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"RootNotIndexedPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                x = torch.empty(2, 4, 16, dtype=dtype, device="meta")
                return [x, torch.empty(16, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                h = x.to(torch.float32)
                mean = aten.mean.dim(h.pow(2), [x.dim() - 1], True)
                scale = torch.rsqrt(aten.add.Scalar(mean, 9.999999974752427e-07))
                normed = (h * scale * weight).to(x.dtype)
                return torch.clamp(normed, -65504.0, 65504.0)

            @staticmethod
            def replacement(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                return torch.ops.npu.npu_rms_norm(x, weight, 1e-6)[0]  # type: ignore[no-any-return]

        return Pattern


RootNotIndexedPatternGroup = [RootNotIndexedPattern.create(torch.bfloat16)]
