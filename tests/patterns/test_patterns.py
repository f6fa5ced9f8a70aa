"""Every variant: a hit, a near miss and a miss, on small graphs; and its numbers."""

import math

import pytest
import torch
import torch.nn.functional as F
from shared_models import ALL
from torch import nn

from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.npu.target import use_target
from fusionkit.passes.compiled import compile_subject, pattern_groups
from fusionkit.phases.unit import replay_variant
from fusionkit.subjects.build import Subject

use_target("cpu")
VARIANTS = [(name, variant) for name, group in pattern_groups(ALL).items() for variant in group]


class Fn(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


def found(fn, *inputs, config=ALL):
    """(pattern, variant without dtype, status) of every match in the compiled function."""
    compiled = compile_subject(Subject(Fn(fn), inputs, name="fn"), config)
    return [(m.pattern, m.variant.rsplit("_", 1)[0], m.status) for m in compiled.matches]


def t(*shape, dtype=torch.bfloat16):
    return torch.randn(shape, dtype=torch.float32).to(dtype)


def hand_written(x, w, eps=1e-5):
    h = x.to(torch.float32)
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)
    return w * h.to(x.dtype)


def interleaved(x, cos, sin):
    real, imaginary = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    rotated = torch.stack([-imaginary, real], dim=-1).flatten(3)
    return (x.float() * cos + rotated.float() * sin).to(x.dtype)


def half(x, cos, sin):
    d = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., d:], x[..., :d]), dim=-1) * sin


def ada(x, scale, shift, eps=1e-6):
    return F.layer_norm(x, (x.shape[-1],), None, None, eps) * (1 + scale[:, None]) + shift[:, None]


def ada_continuous(x, scale, shift):
    return F.layer_norm(x, (x.shape[-1],), None, None, 1e-5) * (1 + scale)[:, None, :] + shift[:, None, :]


def gain_last(x, w, eps=1e-6, power=2):
    return (x * torch.rsqrt(x.to(torch.float32).pow(power).mean(-1, keepdim=True) + eps)).to(x.dtype) * w


def cast_last(x, w, eps=1e-5, power=2):
    h = x.to(torch.float32)
    h = h * torch.rsqrt(h.pow(power).mean(-1, keepdim=True) + eps)
    return (w * h).to(x.dtype)


def one_plus_gain(x, w, eps=1e-6, one=1.0):
    h = x.float()
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)
    return (h * (one + w.float())).type_as(x)


def chunked_half(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def half_table(x, cos, sin):
    first, second = torch.chunk(x, 2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def even_odd(x, cos, sin):
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.cat([even * cos - odd * sin, odd * cos + even * sin], dim=-1)


def sliced(x, cos, sin):
    even, odd = x[..., 0::2], x[..., 1::2]
    return x * cos + torch.stack((-odd, even), dim=-1).flatten(-2) * sin


def gate_first(x):
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


def up_first(x):
    gate, up = x.chunk(2, dim=-1)
    return up * F.silu(gate)


def gate_sliced(x, at=8):
    return F.silu(x[..., :at]) * x[..., at:]


def gate_second(x, w, b=None):
    up, gate = F.linear(x, w, b).chunk(2, dim=-1)
    return up * F.silu(gate)


def written_gelu(x, cubic=0.044715):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + cubic * torch.pow(x, 3.0))))


def ada_broadcast(x, scale, shift, one=1):
    return F.layer_norm(x, (x.shape[-1],), None, None, 1e-6) * (one + scale) + shift


def ada_scale_first(x, scale, shift, one=1):
    return (one + scale) * F.layer_norm(x, (x.shape[-1],), None, None, 1e-6) + shift


TABLE = (1, 6, 1, 16)
HITS = [
    (
        "rms_norm",
        "RmsNormPattern",
        lambda x, w: F.rms_norm(x, (16,), w, 1e-6),
        lambda d: (t(2, 6, 16, dtype=d), t(16, dtype=d)),
    ),
    (
        "rms_norm",
        "RmsNormPattern",
        lambda x, w: F.rms_norm(x, (8,), w, 3e-5),
        lambda d: (t(5, 8, dtype=d), t(8, dtype=d)),
    ),
    (
        "rms_norm",
        "OfViewRmsNormPattern",
        lambda x, w: F.rms_norm(x.transpose(1, 2), (16,), w, 1e-6),
        lambda d: (t(2, 6, 4, 16, dtype=d), t(16, dtype=d)),
    ),
    ("rms_norm", "HandWrittenRmsNormPattern", hand_written, lambda d: (t(2, 6, 16, dtype=d), t(16, dtype=d))),
    (
        "rope",
        "InterleavedRopePattern",
        interleaved,
        lambda d: (t(2, 6, 4, 16, dtype=d), t(*TABLE, dtype=torch.float32), t(*TABLE, dtype=torch.float32)),
    ),
    (
        "rope",
        "HalfRopePattern",
        half,
        lambda d: (t(2, 4, 6, 16, dtype=d), t(2, 1, 6, 16, dtype=d), t(2, 1, 6, 16, dtype=d)),
    ),
    (
        "swiglu",
        "SwigluPattern",
        lambda x, g, u: F.silu(F.linear(x, g)) * F.linear(x, u),
        lambda d: (t(2, 6, 16, dtype=d), t(32, 16, dtype=d), t(32, 16, dtype=d)),
    ),
    ("gelu", "GeluPattern", lambda x: F.gelu(x, approximate="tanh"), lambda d: (t(2, 6, 16, dtype=d),)),
    (
        "ada_layer_norm",
        "AdaLayerNormPattern",
        ada,
        lambda d: (t(2, 6, 16, dtype=d), t(2, 16, dtype=d), t(2, 16, dtype=d)),
    ),
    (
        "ada_layer_norm",
        "AdaLayerNormContinuousPattern",
        ada_continuous,
        lambda d: (t(2, 6, 16, dtype=d), t(2, 16, dtype=d), t(2, 16, dtype=d)),
    ),
    ("rms_norm", "GainLastRmsNormPattern", gain_last, lambda d: (t(2, 6, 16, dtype=d), t(16, dtype=d))),
    ("rms_norm", "CastLastRmsNormPattern", cast_last, lambda d: (t(2, 6, 16, dtype=d), t(16, dtype=d))),
    (
        "rms_norm",
        "OnePlusGainRmsNormPattern",
        one_plus_gain,
        lambda d: (t(2, 6, 16, dtype=d), t(16, dtype=d)),
    ),
    (
        "rope",
        "ChunkedHalfRopePattern",
        chunked_half,
        lambda d: (t(2, 6, 4, 16, dtype=d), t(1, 6, 1, 16, dtype=d), t(1, 6, 1, 16, dtype=d)),
    ),
    (
        "rope",
        "HalfTableRopePattern",
        half_table,
        lambda d: (t(2, 4, 6, 16, dtype=d), t(2, 1, 6, 8, dtype=d), t(2, 1, 6, 8, dtype=d)),
    ),
    (
        "rope",
        "EvenOddRopePattern",
        even_odd,
        lambda d: (t(2, 4, 6, 16, dtype=d), t(2, 1, 6, 8, dtype=d), t(2, 1, 6, 8, dtype=d)),
    ),
    (
        "rope",
        "SlicedInterleavedRopePattern",
        sliced,
        lambda d: (t(1, 4, 6, 16, dtype=d), t(1, 1, 6, 16, dtype=d), t(1, 1, 6, 16, dtype=d)),
    ),
    (
        "rope",
        "SlicedInterleavedRopePattern",
        sliced,
        lambda d: (t(3, 6, 4, 16, dtype=d), t(1, 6, 1, 16, dtype=d), t(1, 6, 1, 16, dtype=d)),
    ),
    ("swiglu", "ChunkedSwigluPattern", gate_first, lambda d: (t(12, 16, dtype=d),)),
    ("swiglu", "UpFirstSwigluPattern", up_first, lambda d: (t(2, 6, 16, dtype=d),)),
    ("swiglu", "SlicedSwigluPattern", gate_sliced, lambda d: (t(2, 6, 16, dtype=d),)),
    ("swiglu", "GateSecondSwigluPattern", gate_second, lambda d: (t(2, 6, 16, dtype=d), t(32, 16, dtype=d))),
    ("gelu", "HandWrittenGeluPattern", written_gelu, lambda d: (t(2, 6, 16, dtype=d),)),
    (
        "ada_layer_norm",
        "AdaLayerNormBroadcastPattern",
        ada_broadcast,
        lambda d: (t(2, 6, 16, dtype=d), t(2, 1, 16, dtype=d), t(2, 1, 16, dtype=d)),
    ),
    (
        "ada_layer_norm",
        "AdaLayerNormScaleFirstPattern",
        ada_scale_first,
        lambda d: (t(2, 6, 16, dtype=d), t(2, 1, 16, dtype=d), t(2, 1, 16, dtype=d)),
    ),
]

# Forms that differ by their casts only, and are one where nothing is cast.
IN_FLOAT32 = {
    "CastLastRmsNormPattern": "HandWrittenRmsNormPattern",
    "OnePlusGainRmsNormPattern": "GainLastRmsNormPattern",
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("pattern", "variant", "fn", "inputs"), HITS, ids=[f"{h[1]}{i}" for i, h in enumerate(HITS)]
)
def test_hit(pattern, variant, fn, inputs, dtype):
    if dtype is torch.float32:
        variant = IN_FLOAT32.get(variant, variant)
    # Tracing every pattern takes longer than the rest: all of them once, and its own group for each dtype.
    own = CompilationConfig(fusion_patterns=select_patterns((pattern,)))
    config = ALL if dtype is torch.bfloat16 else own
    assert found(fn, *inputs(dtype), config=config) == [(pattern, variant, "hit")]


NEAR_MISSES = [
    (
        "mean over two dims",
        lambda x, w: x * torch.rsqrt(x.pow(2).mean((-2, -1), keepdim=True) + 1e-6) * w,
        (t(2, 6, 16), t(16)),
    ),
    ("cube instead of square", lambda x, w: hand_written_power(x, w, 3), (t(2, 6, 16), t(16))),
    ("no gain", lambda x: F.rms_norm(x, (16,), None, 1e-6), (t(2, 6, 16),)),
    (
        "second half negated",
        lambda x, c, s: x * c + torch.cat((x[..., 8:], -x[..., :8]), -1) * s,
        (t(2, 4, 6, 16), t(2, 1, 6, 16), t(2, 1, 6, 16)),
    ),
    (
        "a third of the dim rotates",
        lambda x, c, s: x * c + torch.cat((-x[..., 4:], x[..., :4]), -1) * s,
        (t(2, 4, 6, 16), t(2, 1, 6, 16), t(2, 1, 6, 16)),
    ),
    ("gelu with erf", lambda x: F.gelu(x), (t(2, 6, 16),)),
    (
        "sigmoid gate",
        lambda x, g, u: F.sigmoid(F.linear(x, g)) * F.linear(x, u),
        (t(2, 6, 16), t(32, 16), t(32, 16)),
    ),
    (
        "up is activated, gate is not",
        lambda x, g, u: F.linear(x, g) * F.silu(F.linear(x, u)),
        (t(2, 6, 16), t(32, 16), t(32, 16)),
    ),
    (
        "scale is not 1+",
        lambda x, s, h: F.layer_norm(x, (16,)) * s[:, None] + h[:, None],
        (t(2, 6, 16), t(2, 16), t(2, 16)),
    ),
    (
        "2 + scale",
        lambda x, s, h: F.layer_norm(x, (16,)) * (2 + s[:, None]) + h[:, None],
        (t(2, 6, 16), t(2, 16), t(2, 16)),
    ),
    (
        "layer norm with affine",
        lambda x, s, h, w: F.layer_norm(x, (16,), w) * (1 + s[:, None]) + h[:, None],
        (t(2, 6, 16), t(2, 16), t(2, 16), t(16)),
    ),
    ("cube, gain last", lambda x, w: gain_last(x, w, power=3), (t(2, 6, 16), t(16))),
    ("cube, cast last", lambda x, w: cast_last(x, w, power=3), (t(2, 6, 16), t(16))),
    (
        "the first half negated, by chunk",
        lambda x, c, s: x * c + torch.cat((x.chunk(2, -1)[1], -x.chunk(2, -1)[0]), -1) * s,
        (t(2, 6, 4, 16), t(*TABLE), t(*TABLE)),
    ),
    (
        "half tables, plus for minus",
        lambda x, c, s: torch.cat((x[..., :8] * c + x[..., 8:] * s, x[..., 8:] * c + x[..., :8] * s), -1),
        (t(2, 4, 6, 16), t(2, 1, 6, 8), t(2, 1, 6, 8)),
    ),
    (
        "even and odd leave as pairs",
        lambda x, c, s: torch.stack(
            (x[..., 0::2] * c - x[..., 1::2] * s, x[..., 1::2] * c + x[..., 0::2] * s), -1
        ).flatten(-2),
        (t(2, 4, 6, 16), t(2, 1, 6, 8), t(2, 1, 6, 8)),
    ),
    (
        "the even ones negated, by slices",
        lambda x, c, s: x * c + torch.stack((x[..., 1::2], -x[..., 0::2]), -1).flatten(-2) * s,
        (t(1, 4, 6, 16), t(1, 1, 6, 16), t(1, 1, 6, 16)),
    ),
    (
        "the second half of a chunk is the gate",
        lambda x: F.silu(x.chunk(2, -1)[1]) * x.chunk(2, -1)[0],
        (t(6, 16),),
    ),
    ("up times a gelu", lambda x: x.chunk(2, -1)[1] * F.gelu(x.chunk(2, -1)[0]), (t(6, 16),)),
    (
        "slices that overlap",
        lambda x: F.silu(x[..., :10]) * x[..., 6:],
        (t(2, 6, 16),),
    ),
    ("the second half is the gate, with a bias", gate_second, (t(2, 6, 16), t(32, 16), t(32))),
    ("gelu with another cubic term", lambda x: written_gelu(x, 0.044), (t(2, 6, 16),)),
    (
        "2 + scale, in place",
        lambda x, s, h: ada_broadcast(x, s, h, 2),
        (t(2, 6, 16), t(2, 1, 16), t(2, 1, 16)),
    ),
    ("2 + scale first", lambda x, s, h: ada_scale_first(x, s, h, 2), (t(2, 6, 16), t(2, 1, 16), t(2, 1, 16))),
]


def hand_written_power(x, w, power):
    h = x.to(torch.float32)
    h = h * torch.rsqrt(h.pow(power).mean(-1, keepdim=True) + 1e-6)
    return w * h.to(x.dtype)


@pytest.mark.parametrize(("what", "fn", "inputs"), NEAR_MISSES, ids=[n[0] for n in NEAR_MISSES])
def test_near_miss(what, fn, inputs):
    assert found(fn, *inputs) == []


@pytest.mark.parametrize(
    "fn", [torch.sin, lambda x: x @ x.transpose(-1, -2), lambda x: F.layer_norm(x, (16,))]
)
def test_miss(fn):
    assert found(fn, t(2, 6, 16)) == []


@pytest.mark.parametrize("eps", [1e-6, 1e-5, 1.5625e-07, 9.999999974752427e-07, 0.25])
def test_eps_comes_from_the_graph(eps):
    x, w = t(2, 6, 16, dtype=torch.float32) * 1e-2, t(16, dtype=torch.float32)
    compiled = compile_subject(Subject(Fn(lambda x, w: hand_written(x, w, eps)), (x, w), name="fn"), ALL)
    assert [m.arguments["eps"] for m in compiled.matches] == [eps]
    torch.testing.assert_close(compiled.outcome.outputs[0], hand_written(x, w, eps), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("one", [2.0, 0.5])
def test_a_gain_of_another_offset_is_left_in_the_graph(one):
    """The chain up to the gain is a norm in float32, whatever the gain is made of; nothing takes 1 for 2."""
    x, w = t(2, 6, 16), t(16)
    compiled = compile_subject(Subject(Fn(lambda x, w: one_plus_gain(x, w, one=one)), (x, w), name="fn"), ALL)
    assert [m.variant for m in compiled.matches if m.status == "hit"] == ["GainLastRmsNormPattern_float32"]
    torch.testing.assert_close(compiled.outcome.outputs[0], one_plus_gain(x, w, one=one))


def test_a_value_used_outside_blocks_the_match():
    def fn(x, w):
        h = x.to(torch.float32)
        scale = torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return w * (h * scale).to(x.dtype), scale

    assert found(fn, t(2, 6, 16), t(16)) == []


def test_a_site_that_breaks_a_constraint_is_skipped_with_its_reason():
    def fn(x, cos, sin):
        return half(x, cos, sin)

    inputs = (t(2, 4, 6, 1024), t(2, 1, 6, 1024), t(2, 1, 6, 1024))
    compiled = compile_subject(Subject(Fn(fn), inputs, name="wide"), ALL)
    assert [m.status for m in compiled.matches] == ["skipped"]
    assert "896" in str(compiled.matches[0].reason)
    assert torch.equal(compiled.outcome.outputs[0], fn(*inputs))


def test_pairs_that_turn_by_tables_of_each_batch_are_skipped_with_the_reason():
    inputs = (t(2, 4, 6, 16), t(2, 1, 6, 16), t(2, 1, 6, 16))
    compiled = compile_subject(Subject(Fn(sliced), inputs, name="batch"), ALL)
    assert [m.status for m in compiled.matches] == ["skipped"]
    assert "interleave: 11SD" in str(compiled.matches[0].reason)
    assert torch.equal(compiled.outcome.outputs[0], sliced(*inputs))


def test_a_part_of_a_row_is_no_input_of_swiglu():
    compiled = compile_subject(
        Subject(Fn(lambda x: gate_sliced(x[..., 8:24])), (t(2, 6, 32),), name="part"), ALL
    )
    assert [m.status for m in compiled.matches] == ["skipped"]
    assert "contiguous" in str(compiled.matches[0].reason)


def test_a_wider_gain_changes_the_dtype_and_is_refused():
    compiled = compile_subject(
        Subject(Fn(hand_written), (t(2, 6, 16), t(16, dtype=torch.float32)), name="gain"), ALL
    )
    assert [m.status for m in compiled.matches] == ["refused"]
    assert compiled.matches[0].reason == "the output's dtype would change from float32 to bfloat16"


@pytest.mark.parametrize(("name", "variant"), VARIANTS, ids=[v.name() for _, v in VARIANTS])
def test_numbers_on_five_seeds(name, variant):
    for seed in range(5):
        replay = replay_variant(variant, seed)
        assert replay.verdict, replay.reason
