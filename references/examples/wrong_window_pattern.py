"""0 hits in one window, all hits in the other. Freezing rewrites the graph: on torch 2.13 it turns views into reshapes, so
that a pattern with a view hits before freezing and misses after it.

Apply the pattern in the window in which it hits (`window` of the config). A traced pattern cannot contain the reshape: tracing
turns it into a view. For the window after freezing, use a GraphPatternEntry.
"""

from __future__ import annotations

import torch

from fusionkit.patterns import PatternBase


class WrongWindowPattern:
    """A gate on one half of the channels."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"WrongWindowPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                return [torch.empty(2, 4, 64, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor) -> torch.Tensor:
                value, gate = x.view(x.shape[0], x.shape[1], 2, 32).unbind(2)
                return value * torch.tanh(gate)

            @staticmethod
            def replacement(x: torch.Tensor) -> torch.Tensor:
                value, gate = x.chunk(2, -1)
                return value * torch.tanh(gate)

        return Pattern


WrongWindowPatternGroup = [WrongWindowPattern.create(torch.bfloat16)]
