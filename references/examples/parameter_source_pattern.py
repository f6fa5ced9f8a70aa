"""0 hits, and the variant is not used at all. The search part contains its own tensor: a weight in a closure, an attribute of a
module, `torch.tensor(1e-6)`. In its trace that is a `get_attr`, which matches no node of a model.

Make the weight an argument of pattern and replacement. An argument matches any node, a placeholder as well as a `get_attr`;
which of the two the graph has causes no miss.
"""

from __future__ import annotations

import torch

from fusionkit.patterns import PatternBase

aten = torch.ops.aten
gain = torch.ones(16, dtype=torch.bfloat16)


class ParameterSourcePattern:
    """An RMSNorm that holds its gain itself."""

    @staticmethod
    def create(dtype: torch.dtype) -> type[PatternBase]:
        """Variant for activations and gain of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name() -> str:
                return f"ParameterSourcePattern_{dtype}".replace("torch.", "")

            @staticmethod
            def inputs() -> list[torch.Tensor]:
                return [torch.empty(2, 4, 16, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x: torch.Tensor) -> torch.Tensor:
                h = x.to(torch.float32)
                mean = aten.mean.dim(h.pow(2), [x.dim() - 1], True)
                scale = torch.rsqrt(aten.add.Scalar(mean, 9.999999974752427e-07))
                return (h * scale * gain).to(x.dtype)

            @staticmethod
            def replacement(x: torch.Tensor) -> torch.Tensor:
                return torch.ops.npu.npu_rms_norm(x, gain, 1e-6)[0]  # type: ignore[no-any-return]

        return Pattern


ParameterSourcePatternGroup = [ParameterSourcePattern.create(torch.bfloat16)]
