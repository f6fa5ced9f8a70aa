"""Pattern files under trial: torch.nn.RMSNorm's chain, with one thing right or wrong."""

from __future__ import annotations

from pathlib import Path

_TEXT = '''"""RMSNorm under trial."""

import torch
import torch_npu

from fusionkit.patterns import PatternBase


class TrialRmsNormPattern:
    @staticmethod
    def create(dtype):
        class Pattern(PatternBase):
            @staticmethod
            def name():
                return f"TrialRmsNormPattern_{{dtype}}".replace("torch.", "")

            @staticmethod
            def inputs():
                x = torch.empty(2, 24, 4, 16, dtype=dtype, device="meta")
                return [x, torch.empty(16, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x, weight):
                h = x.to(torch.float32)
                variance = torch.ops.aten.mean.dim(h.pow(2), [x.dim() - 1], True)
                h = h * torch.rsqrt(torch.ops.aten.add.Scalar(variance, {eps}))
                return (h * weight).to(x.dtype)

            @staticmethod
            def replacement(x, weight):
{replacement}

        return Pattern


TrialRmsNormPatternGroup = [TrialRmsNormPattern.create(d) for d in (torch.bfloat16, torch.float32)]
'''

GRAPH_EPS = "9.999999974752427e-07"  # float32(1e-6), as it stands in the graph
REPLACEMENTS = {
    "right": "return torch_npu.npu_rms_norm(x, weight, 1e-6)[0]",
    "scaled by 1.01": "return torch_npu.npu_rms_norm(x, weight, 1e-6)[0] * 1.01",
    "two rows zeroed": """y = torch_npu.npu_rms_norm(x, weight, 1e-6)[0]
keep = torch.ones(y[..., :1].numel(), dtype=y.dtype, device=y.device)
keep = torch.cat([torch.zeros_like(keep[:2]), keep[2:]])
return y * keep.reshape(y[..., :1].shape)""",
    "eps 1e-2": "return torch_npu.npu_rms_norm(x, weight, 1e-2)[0]",
    "gain lost": "return torch_npu.npu_rms_norm(x, torch.ones_like(weight), 1e-6)[0]",
}
DEFECTS = [name for name in REPLACEMENTS if name != "right"]


def write_trial(folder: Path, replacement: str = "right", eps: str = GRAPH_EPS) -> Path:
    """Write `trial_rms_norm_pattern.py` into `folder`."""
    body = "\n".join(" " * 16 + line for line in REPLACEMENTS[replacement].splitlines())
    path = folder / "trial_rms_norm_pattern.py"
    path.write_text(_TEXT.format(eps=eps, replacement=body))
    return path
