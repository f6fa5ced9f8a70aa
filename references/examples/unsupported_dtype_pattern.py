"""0 hits at a site where everything fits, and torch's matcher gives no reason: it passes by every node that reads or makes a
tensor of a dtype for which Inductor generates no code, such as complex64 or float8_e8m0fnu. Only the pattern's last node counts.

End the pattern at a node behind it, such as `view_as_real`'s user, or hand the tensor over in another dtype.
"""

from __future__ import annotations

import torch

from fusionkit.patterns import PatternBase


class UnsupportedDtypePattern:
    """A complex rotation."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for `x` of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"UnsupportedDtypePattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                return [torch.empty(2, 8, dtype=dtype, device="meta"), torch.empty(2, 8, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
                return x * torch.polar(torch.ones_like(angle), angle)

            @staticmethod
            def replacement(x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
                return torch.polar(x.abs(), x.angle() + angle)

        return Pattern


UnsupportedDtypePatternGroup = [UnsupportedDtypePattern.create(torch.complex64)]
