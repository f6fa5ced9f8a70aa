"""What a call is given: by its name, by what the code takes, or named where nothing fits."""

from __future__ import annotations

import pytest
from proved_texts import guarded, prove_texts

from fusionkit.verdict import Verdict

NORM = """
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x, {parameter}):
        x = {used}
        variance = x.float().pow(2).mean(-1, keepdim=True)
        return (x.float() * torch.rsqrt(variance + 1e-5) * self.weight.float()).to(x.dtype)
"""
RIGHT = "return torch_npu.npu_rms_norm(x, self.weight.to(x.dtype), 1e-5)[0]"
# parameter -> how the code uses it
FITTING = {
    "temb": "x * temb[:, None]",
    "latents": "torch.cat((x, latents), dim=1)",
    "positions": "x * torch.arange(1.0, 99).to(x.dtype)[positions][..., None]",
    "heads_first": "x * heads_first.mean(dim=1).sum(dim=-1, keepdim=True)",
    "times: int": "x * times",
    "flag: bool": "-x if flag else x",
}
PARTIAL = """
import torch


def rotate_half(x):
    one, other = x.chunk(2, dim=-1)
    return torch.cat((-other, one), dim=-1)


def apply_partial(q, v, cos, sin):
    width = cos.shape[-1]
    rotated, kept = q[..., :width], q[..., width:]
    out = torch.cat((rotated * cos + rotate_half(rotated) * sin, kept), dim=-1)
    return out, v
"""
ROTATED = """
wide = torch.promote_types(rotated.dtype, cos.dtype)
out = torch.cat((torch_npu.npu_rotary_mul(rotated.to(wide), {}), kept), dim=-1)
"""


def norm(parameter):
    text = NORM.format(parameter=parameter, used=FITTING.get(parameter, f"x * {parameter}.unknown_field"))
    return text, text.partition("\n        x = ")[2].partition("\n")[2]


@pytest.mark.parametrize("parameter", FITTING)
def test_an_argument_is_found_by_what_the_code_takes(tmp_path, parameter):
    text, body = norm(parameter)
    (proof,) = prove_texts(tmp_path, text, "npu_rms_norm", guarded(text, body, RIGHT), dtypes=("float32",))
    assert proof.verdict is Verdict.PASS, proof.reason


def test_an_argument_that_nothing_fits_is_named(tmp_path):
    text, body = norm("capacitor")
    (proof,) = prove_texts(tmp_path, text, "npu_rms_norm", guarded(text, body, RIGHT), dtypes=("float32",))
    assert proof.verdict is Verdict.INCONCLUSIVE
    assert proof.reason == "no recipe for parameter capacitor of Norm, and no usual shape fits it"


def test_a_guess_accuses_nobody(tmp_path):
    text, body = norm("heads_first")
    (proof,) = prove_texts(
        tmp_path, text, "npu_rms_norm", guarded(text, body, RIGHT + " * 2"), dtypes=("float32",)
    )
    assert proof.verdict is Verdict.INCONCLUSIVE
    assert "with a guessed heads_first" in proof.reason


def test_a_partial_rotation_leaves_a_part(tmp_path):
    body = "    out = torch.cat((rotated * cos + rotate_half(rotated) * sin, kept), dim=-1)\n"
    right, wrong = (
        ROTATED.format("cos[None, None], sin[None, None]"),
        ROTATED.format("cos[None, None], sin[None, None]").replace(", kept)", ", 2 * kept)"),
    )
    texts = [guarded(PARTIAL, body, fused) for fused in (right, wrong)]
    one, other = prove_texts(tmp_path, PARTIAL, "npu_rotary_mul", *texts, dtypes=("float32",))
    assert one.verdict is Verdict.PASS, one.reason
    assert other.verdict is Verdict.FAIL, other.reason
