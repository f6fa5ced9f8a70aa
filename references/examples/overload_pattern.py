"""0 hits, although the op is correct. It is another overload of that op: `mean + eps` gives `add.Tensor`, torch.nn.RMSNorm's
decomposition gives `add.Scalar`.

Call the overload by its full name, `torch.ops.aten.add.Scalar`.
"""

from __future__ import annotations

import torch

from fusionkit.patterns import PatternBase

aten = torch.ops.aten


class OverloadPattern:
    """An RMSNorm that adds eps by add.Tensor."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations and gain of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"OverloadPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                x = torch.empty(2, 4, 16, dtype=dtype, device="meta")
                return [x, torch.empty(16, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                h = x.to(torch.float32)
                mean = aten.mean.dim(h.pow(2), [x.dim() - 1], True)
                scale = torch.rsqrt(aten.add.Tensor(mean, 9.999999974752427e-07))
                return (h * scale * weight).to(x.dtype)

            @staticmethod
            def replacement(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                return torch.ops.npu.npu_rms_norm(x, weight, 1e-6)[0]  # type: ignore[no-any-return]

        return Pattern


OverloadPatternGroup = [OverloadPattern.create(torch.bfloat16)]
