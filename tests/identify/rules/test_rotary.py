"""Rotary products, by layout."""

import textwrap

import pytest
from rule_sources import found

ROTATE = """
def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)

def rotate_pairs(x):
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack((-x2, x1), dim=-1).flatten(-2)
"""
ROTATIONS = {
    "half": ("return q * cos + rotate_half(q) * sin", set()),
    "batch": (
        "cos = cos.unsqueeze(dim)\nsin = sin.unsqueeze(dim)\nreturn (q * cos) + (rotate_half(q) * sin)",
        {"rope_per_batch_cos_sin"},
    ),
    "neighbours": ("return q * cos + rotate_pairs(q) * sin", {"rope_interleave"}),
    "backwards": (
        "a, b = q.chunk(2, -1)\nreturn q * cos + torch.cat((b, -a), -1) * sin",
        {"rope_reversed"},
    ),
    "float32": (
        "d = q.dtype\nq = q.float()\nreturn (q * cos + rotate_half(q) * sin).to(dtype=d)",
        {"dtype_order"},
    ),
    "pairs written out": (
        "a, b = q[..., 0::2], q[..., 1::2]\nreturn torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)",
        {"rope_interleave", "rope_half_width_cos_sin"},
    ),
    "partial": (
        "n = cos.shape[-1]\nr, p = q[..., :n], q[..., n:]\n"
        "return torch.cat((r * cos + rotate_half(r) * sin, p), dim=-1)",
        {"rope_partial", "non_contiguous"},
    ),
    "complex": (
        "z = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))\n"
        "return torch.view_as_real(z * cos).flatten(3).type_as(q)",
        {"rope_complex"},
    ),
}


@pytest.mark.parametrize(("body", "hazards"), ROTATIONS.values(), ids=ROTATIONS)
def test_rotations(body, hazards):
    code = ROTATE + "def rope(q, cos, sin, dim=1):\n" + textwrap.indent(body, "    ") + "\n"
    assert found(code) == {"rope": {"npu_rotary_mul": hazards}}


def test_what_is_no_rotation():
    code = (
        ROTATE
        + "def table(freqs):\n    return torch.cat((freqs.cos(), freqs.sin()), -1) * 2 + freqs.cos() * freqs.sin()\n"
    )
    assert found(code) == {}
