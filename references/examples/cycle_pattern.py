"""0 hits at a site where everything fits: an argument of the pattern is computed from one of its outputs. A fused op gives all
its outputs at once, so it would have to wait for itself. Where the argument only stands behind the first matched node, there
is no cycle: the kit rewrites the site and sorts the graph.

End the pattern before the node that needs the argument, or leave that output out. No other spelling of it mends that.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fusionkit.patterns import PatternBase


class CyclePattern:
    """A sum and its scaled activation as one op."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for tensors of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"CyclePattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[Tensor]:
                x = torch.empty(2, 16, dtype=dtype, device="meta")
                return [x, x, torch.empty((), dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: Tensor, y: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
                total = x + y
                return torch.sigmoid(total) * scale, total

            @staticmethod
            def replacement(x: Tensor, y: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
                both = torch.stack([torch.sigmoid(y + x) * scale, y + x])  # as one op gives them
                return both[0], both[1]

        return Pattern


CyclePatternGroup = [CyclePattern.create(torch.bfloat16)]
