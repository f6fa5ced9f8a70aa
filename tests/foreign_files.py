"""Pattern files in MindIE-SD's own form: where they import from, and what they call there."""

from __future__ import annotations

from pathlib import Path

_HEAD = '''"""A file that stands three packages deep in another project."""

import torch

from ..passes.register_pattern_to_pass import PatternBase
{imports}

npu_available = False
if hasattr(torch.npu, "is_available"):
    npu_available = torch.npu.is_available()
if npu_available:
    import torch_npu
    import mindiesd


def create(dtype, epsilon=1e-6):
    _eps = torch.tensor(epsilon, dtype=torch.float32, device="cpu").item()

    class {cls}(PatternBase):
        @staticmethod
        def name():
            return __class__.__name__ + f"-{{dtype}}"

        @staticmethod
        def inputs():
            return [{inputs}]

        @staticmethod
        def pattern({arguments}):
            def func({arguments}):
{pattern}

            return func({arguments})

        @staticmethod
        def replacement({arguments}):
            def func({arguments}):
{replacement}

            return func({arguments})
{more}
    return {cls}


{cls}Group = [create(torch.bfloat16)]
'''


def tensor(*shape: int) -> str:
    """An example input."""
    return f'torch.empty({", ".join(map(str, shape))}, dtype=dtype, device="meta")'


_NORM = {
    "cls": "RMSNormPattern",
    "arguments": "x, weight",
    "inputs": f"{tensor(2, 2, 2, 2)}, {tensor(2)}",
    "pattern": """h = {cast}
variance = torch.ops.aten.add.Scalar(h.pow(2).mean(h.dim() - 1, keepdim=True), _eps)
return h * torch.rsqrt(variance) * weight""",
    "replacement": "return torch_npu.npu_rms_norm(x, weight, epsilon=_eps)[0]",
}
_ADD = {
    "cls": "MulAddPattern",
    "imports": "from ...layers import muls_add",
    "arguments": "x, y",
    "inputs": f"{tensor(2, 2)}, {tensor(2, 2)}",
    "pattern": "return x * 1.5 + y",
    "replacement": "return muls_add(x, y, 1.5)",
}
_MODULATED = {
    "cls": "NormOutPattern",
    "arguments": "x, scale, shift",
    "inputs": f"{tensor(1, 4, 16)}, {tensor(1, 16)}, {tensor(1, 16)}",
    "pattern": """h = torch.ops.aten.native_layer_norm.default(x, [x.shape[-1]], None, None, epsilon)[0]
return h * (scale + 1).unsqueeze(1) + shift.unsqueeze(1)""",
    "replacement": """norm = torch.nn.LayerNorm(x.shape[-1], eps=epsilon, dtype=x.dtype, device=x.device)
return mindiesd.layernorm_scale_shift(layernorm=norm, x=x, scale=scale, shift=shift, fused=True)""",
}
_ROPE = {
    "cls": "RopePattern",
    "arguments": "x, cos, sin",
    "inputs": f"{tensor(2, 4, 3, 8)}, {tensor(1, 4, 1, 8)}, {tensor(1, 4, 1, 8)}",
    "pattern": """real, imaginary = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
return x * cos + torch.stack([-imaginary, real], dim=-1).flatten(3) * sin""",
    "replacement": """return mindiesd.rotary_position_embedding(
    x, cos, sin, rotated_mode="rotated_interleaved", head_first=False, fused=True)""",
}
_UNKNOWN = {
    "cls": "SwigluPattern",
    "imports": "from ...utils.logs.logging import logger\n"
    "from mindiesd.layers.scale_shift import (\n    swiglu as mindie_swiglu,\n)\nlogger.debug('imported')",
    "arguments": "gate, up",
    "inputs": f"{tensor(2, 8)}, {tensor(2, 8)}",
    "pattern": "return torch.nn.functional.silu(gate) * up",
    "replacement": "return mindie_swiglu(gate, up)",
}
_CHECKED = _ADD | {
    "more": "\n        extra_check = staticmethod(lambda match: match.kwargs['x'].meta['val'].dim() == 2)\n"
}

FILES: dict[str, dict[str, str]] = {
    "npu cast": _NORM
    | {"pattern": _NORM["pattern"].format(cast="torch.ops.npu._npu_dtype_cast.default(x, torch.float32)")},
    "aten cast": _NORM
    | {"pattern": _NORM["pattern"].format(cast="torch.ops.aten._to_copy.default(x, dtype=torch.float32)")},
    "muls_add": _ADD,
    "layernorm_scale_shift": _MODULATED,
    "rotary_position_embedding": _ROPE,
    "unknown name": _UNKNOWN,
    "own check": _CHECKED,
}


def write_foreign(folder: Path, what: str) -> Path:
    """Write one of FILES into `folder`."""
    parts = {"imports": "", "more": ""} | FILES[what]
    indented = {
        key: "\n".join(" " * 16 + line for line in parts[key].splitlines())
        for key in ("pattern", "replacement")
    }
    path = folder / f"{what.replace(' ', '_')}_pattern.py"
    path.write_text(_HEAD.format(**parts | indented))
    return path
