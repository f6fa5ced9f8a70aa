"""Hits at one length, 0 at another. A size that varies is written as a literal: in a view, a reshape, a split or a slice. Sizes
are literals too.

Compute the size from the inputs' shape, as `x.shape[1]`. If no input determines it, use a GraphPatternEntry with `Ignored()`
sizes, which is also what `repair` writes if sites differ in a way that it cannot compute.
"""

from __future__ import annotations

import torch

from fusionkit.patterns import PatternBase


class DynamicShapePattern:
    """A gate on one half of the channels, its sizes written out."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"DynamicShapePattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                return [torch.empty(4, 4, 64, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor) -> torch.Tensor:
                value, gate = x.view(4, 4, 2, 32).unbind(2)
                return value * torch.tanh(gate)

            @staticmethod
            def replacement(x: torch.Tensor) -> torch.Tensor:
                value, gate = x.chunk(2, -1)
                return value * torch.tanh(gate)

        return Pattern


DynamicShapePatternGroup = [DynamicShapePattern.create(torch.bfloat16)]
