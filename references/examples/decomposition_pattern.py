"""0 hits, although the search part is written like the model. One side has an op of another level: a prims op, or a composite
op that the other side has decomposed. Often the pattern was traced with another table than the model, or copied from a dump
after Inductor's decompositions. The second output below is for the file that hits, traced with Inductor's table.

Write the op of the graph, or trace the pattern with the decomposition table of the model's compile.
"""

from __future__ import annotations

import torch

from fusionkit.patterns import PatternBase

aten = torch.ops.aten


class DecompositionPattern:
    """An RMSNorm whose cast is an op of prims."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations and gain of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"DecompositionPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                x = torch.empty(2, 4, 16, dtype=dtype, device="meta")
                return [x, torch.empty(16, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                h = torch.ops.prims.convert_element_type(x, torch.float32)
                mean = aten.mean.dim(h.pow(2), [x.dim() - 1], True)
                scale = torch.rsqrt(aten.add.Scalar(mean, 9.999999974752427e-07))
                return (h * scale * weight).to(x.dtype)

            @staticmethod
            def replacement(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                return torch.ops.npu.npu_rms_norm(x, weight, 1e-6)[0]  # type: ignore[no-any-return]

        return Pattern


DecompositionPatternGroup = [DecompositionPattern.create(torch.bfloat16)]
