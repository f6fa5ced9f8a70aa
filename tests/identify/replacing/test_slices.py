"""A rotation that is written into the slices of an empty tensor, as diffusers' Wan has it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from replaced_modules import Recording, of_text

from fusionkit.identify.replacing import Refused, Replacement

WAN = """import torch


def rotate(x, freqs_cos, freqs_sin):
    x1, x2 = x.unflatten(-1, (-1, 2)).unbind(-1)
    cos = freqs_cos[..., 0::2]
    sin = freqs_sin[..., 1::2]
    out = torch.empty_like(x)
    out[..., 0::2] = x1 * cos - x2 * sin
    out[..., 1::2] = x1 * sin + x2 * cos
    return out.type_as(x)
"""


def result(text: str, tmp_path: Path) -> Replacement | Refused:
    return of_text(text, tmp_path, "npu_rotary_mul")


@pytest.mark.parametrize(("dtype", "step"), [(torch.float32, 1e-6), (torch.bfloat16, 0.02)])
@pytest.mark.parametrize("freqs_dtype", [torch.float32, torch.float64])
def test_both_halves_become_one_call(
    dtype: torch.dtype, step: float, freqs_dtype: torch.dtype, tmp_path: Path, facade: object
):
    made = result(WAN, tmp_path)
    assert isinstance(made, Replacement), made
    old, new, calls = {}, {}, []
    exec(WAN, old)  # noqa: S102 - what is tested is a text
    exec(made.new_text, new)  # noqa: S102
    new["torch_npu"] = Recording(facade, calls)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn((2, 6, 3, 8), generator=draw).to(dtype)
    angles = torch.rand((1, 6, 1, 4), generator=draw, dtype=freqs_dtype).repeat_interleave(2, dim=-1)
    expected, actual = (held["rotate"](x, angles.cos(), angles.sin()) for held in (old, new))
    assert expected.dtype == actual.dtype == dtype
    assert (expected.float() - actual.float()).abs().max() <= step
    assert calls == (["npu_rotary_mul"] if freqs_dtype is torch.float32 else [])


def test_the_empty_tensor_and_the_slices_are_of_the_original_alone(tmp_path: Path):
    fused = result(WAN, tmp_path).new_text.partition("    else:\n        ")[0]
    assert "empty_like" not in fused
    assert "unbind" not in fused
    assert "out[" not in fused


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("out[..., 0::2]", "out[..., ::3]"),
        ("empty_like(x)", "empty_like(freqs_cos)"),
        ("torch.empty_like(x)", "x.clone()"),
        ("x1 * cos - x2 * sin", "x1 * cos + x2 * sin"),
        ("    out[..., 1::2] =", "    x = out * 2\n    out[..., 1::2] ="),
        ("0::2] = x1 * cos - x2 * sin\n    out[..., 1::2] = x1 * sin + x2 * cos",
         "1::2] = x1 * cos - x2 * sin\n    out[..., 0::2] = x1 * sin + x2 * cos"),
    ],
)  # fmt: skip
def test_slices_that_are_no_rotation_are_refused(old: str, new: str, tmp_path: Path):
    assert old in WAN
    assert isinstance(result(WAN.replace(old, new), tmp_path), Refused)
