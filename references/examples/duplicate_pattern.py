"""0 hits with a correct variant. An equal one precedes it in the group, and its replacement does not fit; the matcher registers
equal patterns once, so the second is never tried. The same happens between two files.

Remove one of the two. Variants have to differ in the search part, not only in the replacement.
"""

from __future__ import annotations

import torch

from fusionkit.patterns import PatternBase

aten = torch.ops.aten


class DuplicatePattern:
    """An RMSNorm; `wide`: with a replacement that gives float32."""

    @staticmethod
    def create(dtype: torch.dtype, wide: bool) -> type[PatternBase]:
        """Variant for activations and gain of `dtype`; `wide` says what the replacement gives."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"DuplicatePattern_{dtype}{'_wide' if wide else ''}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                x = torch.empty(2, 4, 16, dtype=dtype, device="meta")
                return [x, torch.empty(16, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                h = x.to(torch.float32)
                mean = aten.mean.dim(h.pow(2), [x.dim() - 1], True)
                scale = torch.rsqrt(aten.add.Scalar(mean, 9.999999974752427e-07))
                return (h * scale * weight).to(x.dtype)

            @staticmethod
            def replacement(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                y: torch.Tensor = torch.ops.npu.npu_rms_norm(x, weight, 1e-6)[0]
                return y.float() if wide else y

        return Pattern


DuplicatePatternGroup = [DuplicatePattern.create(torch.bfloat16, wide) for wide in (True, False)]
