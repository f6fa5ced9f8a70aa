"""0 hits with the eps of the model's code. The number in the graph differs: torch.nn.RMSNorm's trace has float32(1e-06), which
is not 1e-06. A power, a factor or a clamp's bound can differ in the same way.

Do not write the number as a literal: make it an argument with a default and name it in `scalars()`
([pattern files](pattern-files.md#scalars)), and it is read from the graph at every site.
"""

from __future__ import annotations

import torch

from fusionkit.patterns import PatternBase

aten = torch.ops.aten


class ScalarLiteralPattern:
    """An RMSNorm with the eps that the module was given."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations and gain of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"ScalarLiteralPattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                x = torch.empty(2, 4, 16, dtype=dtype, device="meta")
                return [x, torch.empty(16, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                h = x.to(torch.float32)
                mean = aten.mean.dim(h.pow(2), [x.dim() - 1], True)
                scale = torch.rsqrt(aten.add.Scalar(mean, 1e-06))
                return (h * scale * weight).to(x.dtype)

            @staticmethod
            def replacement(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                return torch.ops.npu.npu_rms_norm(x, weight, 1e-6)[0]  # type: ignore[no-any-return]

        return Pattern


ScalarLiteralPatternGroup = [ScalarLiteralPattern.create(torch.bfloat16)]
