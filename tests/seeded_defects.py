"""Primitives with right replacements and seeded defects, which the per-site replay has to tell apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fusionkit.npu.target import use_target

use_target("cpu")
NPU, KIT = torch.ops.npu, torch.ops.fusionkit
EPS = 1e-6
Function = Callable[..., Any]


@dataclass(frozen=True)
class Primitive:
    """`inputs`: dtype and seed -> tensors; `activations`: those that a replay draws."""

    original: Function
    inputs: Callable[[torch.dtype, int], list[Tensor]]
    right: Mapping[str, Function]
    wrong: Mapping[str, Function]
    activations: tuple[int, ...] = (0,)


def normal(*shape: int, seed: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
    return (scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).to(dtype)


def changed(function: Function, change: Function) -> Function:
    """The function with its result changed."""
    return lambda *given: change(function(*given))


def rows_zeroed(y: Tensor) -> Tensor:
    rows = y.clone().reshape(-1, y.shape[-1])
    rows[3], rows[-1] = 0, 0
    return rows.reshape(y.shape)


def scaled(y: Tensor) -> Tensor:
    return (y.float() * 1.01).to(y.dtype)


def remembering(function: Function, index: int) -> Function:
    """The function with the first call's value of one argument in every call."""
    first: list[Tensor] = []

    def call(*given: Tensor) -> Any:
        first.append(given[index].clone())
        return function(*given[:index], first[0], *given[index + 1 :])

    return call


def norm(x: Tensor, w: Tensor, eps: float = EPS) -> Tensor:
    h = x.float()
    return w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def norm_once(x: Tensor, w: Tensor, eps: float = EPS) -> Tensor:
    """Another order of the same arithmetic in float32, rounded once, as fused kernels do it."""
    h = x.float()
    return (h / torch.sqrt((h * h).sum(-1, keepdim=True) / h.shape[-1] + eps) * w.float()).to(x.dtype)


def norm_by(mean_square: Callable[[Tensor], Tensor]) -> Function:
    return lambda x, w: w * (x.float() * mean_square(x.float()).rsqrt()).to(x.dtype)


def noisy(x: Tensor, w: Tensor) -> Tensor:
    return norm_once(x, w) * (1 + 0.2 * torch.rand(()).to(x.dtype))


def in_place(x: Tensor, w: Tensor) -> Tensor:
    y = norm_once(x, w)
    x.mul_(1)
    return y


NORM = Primitive(
    norm,
    lambda d, s: [normal(2, 12, 48, seed=s, dtype=d, scale=1.7), (1 + normal(48, seed=s + 9, scale=0.3)).to(d)],
    {
        "the fused op": lambda x, w: NPU.npu_rms_norm(x, w, EPS)[0],
        "rounded once": norm_once,
        "rounded as the original": lambda x, w: norm_once(x, torch.ones_like(w)) * w,
        "torch's own": lambda x, w: F.rms_norm(x.float(), x.shape[-1:], w.float(), EPS).to(x.dtype),
        "in float64": lambda x, w: norm_once(x.double(), w.double()).to(x.dtype),
    },
    {
        "scaled by 1.01": changed(norm_once, scaled),
        "two rows zeroed": changed(norm_once, rows_zeroed),
        "eps of 1e-2": lambda x, w: norm_once(x, w, 1e-2),
        "eps of 1e-5": lambda x, w: norm_once(x, w, 1e-5),
        "no eps": lambda x, w: norm_once(x, w, 0.0),
        "eps as a lower limit": norm_by(lambda h: h.pow(2).mean(-1, True).clamp(min=EPS)),
        "eps outside the root": lambda x, w: w * (x.float() / (x.float().pow(2).mean(-1, True).sqrt() + EPS)).to(x.dtype),
        "gain lost": lambda x, w: norm_once(x, torch.ones_like(w)),
        "gain without sign": lambda x, w: norm_once(x, w.abs()),
        "gain plus one": lambda x, w: norm_once(x, 1 + w),
        "the first call's gain": remembering(norm_once, 1),
        "mean taken out": lambda x, w: norm_once((x.float() - x.float().mean(-1, True)).to(x.dtype), w),
        "statistics of the first sample": norm_by(lambda h: h[:1].pow(2).mean(-1, True) + EPS),
        "statistics over rows": norm_by(lambda h: h.pow(2).mean(-2, True) + EPS),
        "result limited to 9": changed(norm_once, lambda y: y.clamp(-9, 9)),
        "NaN cleaned": changed(norm_once, torch.nan_to_num),
        "result under a soft cap": changed(norm_once, lambda y: torch.tanh(y / 30) * 30),
        "input limited to 100": lambda x, w: norm_once(x.clamp(-100, 100), w),
        "noise": noisy,
        "input written to": in_place,
    },
)  # fmt: skip


def gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def gelu_by_sigmoid(x: Tensor, factor: float = 1.5957691216057308, cubic: float = 0.044715) -> Tensor:
    h = x.float()
    return (h * torch.sigmoid(factor * (h + cubic * h * h * h))).to(x.dtype)


GELU = Primitive(
    gelu,
    lambda d, s: [normal(2, 16, 64, seed=s, dtype=d, scale=2)],
    {
        "the fused op": lambda x: NPU.npu_gelu(x, approximate="tanh"),
        "by the sigmoid": gelu_by_sigmoid,
    },
    {
        "erf": F.gelu,
        "quick": lambda x: x * torch.sigmoid(1.702 * x),
        "silu": F.silu,
        "relu": F.relu,
        "limited to 6": changed(gelu, lambda y: y.clamp(max=6.0)),
        "negative side lost": changed(gelu, lambda y: y.clamp(min=0.0)),
        "no cubic term": lambda x: gelu_by_sigmoid(x, cubic=0.0),
        "another cubic term": lambda x: gelu_by_sigmoid(x, cubic=0.05),
        "NaN cleaned": changed(gelu, torch.nan_to_num),
        "rows swapped": lambda x: gelu(x.flip(0)),
    },
)  # fmt: skip


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def swiglu_once(gate: Tensor, up: Tensor) -> Tensor:
    h = gate.float()
    return (h / (1 + torch.exp(-h)) * up.float()).to(gate.dtype)


SWIGLU = Primitive(
    swiglu,
    lambda d, s: [normal(2, 16, 48, seed=s + i, dtype=d) for i in (0, 70)],
    {
        "the fused op": lambda g, u: NPU.npu_swiglu(torch.cat((g, u), -1), -1),
        "rounded once": swiglu_once,
        "rounded as the original": lambda g, u: F.silu(g.float()).to(g.dtype) * u,
    },
    {
        "halves swapped": lambda g, u: swiglu_once(u, g),
        "gate limited to 7": lambda g, u: swiglu_once(g.clamp(max=7.0), u),
        "up limited to 7": lambda g, u: swiglu_once(g, u.clamp(-7.0, 7.0)),
        "up plus one": lambda g, u: swiglu_once(g, u + 1),
        "another factor in the gate": lambda g, u: g * torch.sigmoid(1.702 * g) * u,
        "sigmoid alone": lambda g, u: torch.sigmoid(g) * u,
        "gelu in the gate": lambda g, u: gelu(g) * u,
        "up of the first sample": lambda g, u: swiglu_once(g, u[:1].expand_as(u)),
        "result under a soft cap": changed(swiglu_once, lambda y: torch.tanh(y / 50) * 50),
        "the first call's up": remembering(swiglu_once, 1),
    },
    (0, 1),
)  # fmt: skip


def ada(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=EPS) * (1 + scale[:, None]) + shift[:, None]


def ada_once(
    x: Tensor, scale: Tensor, shift: Tensor, eps: float = EPS, one: float = 1.0, spare: int = 0
) -> Tensor:
    h = x.float() - x.float().mean(-1, keepdim=True)
    h = h / torch.sqrt((h * h).sum(-1, keepdim=True) / (h.shape[-1] - spare) + eps)
    return (h * (one + scale.float()[:, None]) + shift.float()[:, None]).to(x.dtype)


ADA = Primitive(
    ada,
    lambda d, s: [
        normal(2, 16, 64, seed=s, dtype=d, scale=1.5),
        *(normal(2, 64, seed=s + i, dtype=d, scale=0.5) for i in (50, 70)),
    ],
    {
        "the fused op": lambda x, a, b: KIT.layer_norm_scale_shift(x, a.unsqueeze(1), b.unsqueeze(1), EPS),
        "rounded once": ada_once,
        "rounded as the original": lambda x, a, b: F.layer_norm(x, x.shape[-1:], eps=EPS) * (1 + a[:, None]) + b[:, None],
    },
    {
        "scale without one": lambda x, a, b: ada_once(x, a, b, one=0.0),
        "scale and shift swapped": lambda x, a, b: ada_once(x, b, a),
        "scale of the first sample": lambda x, a, b: ada_once(x, a[:1].expand_as(a), b),
        "shift of the first sample": lambda x, a, b: ada_once(x, a, b[:1].expand_as(b)),
        "shift lost": lambda x, a, b: ada_once(x, a, torch.zeros_like(b)),
        "shift taken off": lambda x, a, b: ada_once(x, a, -b),
        "eps of 1e-3": lambda x, a, b: ada_once(x, a, b, eps=1e-3),
        "variance without bias": lambda x, a, b: ada_once(x, a, b, spare=1),
        "mean kept": lambda x, a, b: norm(x, torch.ones(64, dtype=x.dtype)) * (1 + a[:, None]) + b[:, None],
        "two rows zeroed": changed(ada_once, rows_zeroed),
        "scale limited to 3": lambda x, a, b: ada_once(x, a.clamp(-3, 3), b),
    },
)  # fmt: skip


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return x * cos[:, :, None] + torch.cat((-b, a), dim=-1) * sin[:, :, None]


def rope_inputs(dtype: torch.dtype, seed: int) -> list[Tensor]:
    angle = (3 * normal(1, 16, 8, seed=seed)).repeat(2, 1, 2)
    return [normal(2, 16, 4, 16, seed=seed + 50, dtype=dtype), angle.cos().to(dtype), angle.sin().to(dtype)]


def interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return x * cos[:, :, None] + torch.stack((-b, a), dim=-1).flatten(-2) * sin[:, :, None]


ROPE = Primitive(
    turn,
    rope_inputs,
    {
        "the fused op": lambda x, c, s: NPU.npu_rotary_mul(x, c[:, :, None], s[:, :, None]),
        "in float32": lambda x, c, s: turn(x.float(), c.float(), s.float()).to(x.dtype),
    },
    {
        "interleaved": interleaved,
        "backwards": lambda x, c, s: turn(x, c, -s),
        "sine lost": lambda x, c, s: turn(x, c, torch.zeros_like(s)),
        "cosine and sine swapped": lambda x, c, s: turn(x, s, c),
        "tables of the first sample": lambda x, c, s: turn(x, c[:1], s[:1]),
        "first half of the tables": lambda x, c, s: turn(x, *(t[..., :8].repeat(1, 1, 2) for t in (c, s))),
        "tables of the next position": lambda x, c, s: turn(x, c.roll(1, 1), s.roll(1, 1)),
        "half of the dims": lambda x, c, s: torch.cat((turn(x, c, s)[..., :8], x[..., 8:]), -1),
        "the first head's values": lambda x, c, s: turn(x[:, :, :1].expand_as(x), c, s),
        "cosine in bfloat16's low bits": lambda x, c, s: turn(x, (c + 16) - 16, s),
    },
)  # fmt: skip


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float = 8**-0.5, low: float = -1e4
) -> Tensor:
    scores = (q @ k.transpose(-1, -2)).float() * scale
    return torch.softmax(scores.masked_fill(~mask, low), -1).to(v.dtype) @ v


def attention_once(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return attention(q.float(), k.float(), v.float(), mask).to(q.dtype)


ATTENTION = Primitive(
    attention,
    lambda d, s: [*(normal(2, 3, 6, 8, seed=s + i, dtype=d) for i in (0, 20, 40)), normal(2, 1, 6, 6, seed=s + 60) > -0.5],
    {
        "in float32": attention_once,
        "rounded as the original": lambda q, k, v, m: attention(q * 1, k, v, m),
        "where for masked_fill": lambda q, k, v, m: torch.softmax(
            torch.where(m, (q @ k.mT).float() * 8**-0.5, -1e4), -1).to(v.dtype) @ v,
    },
    {
        "mask left out": lambda q, k, v, m: attention(q, k, v, torch.ones_like(m)),
        "mask inverted": lambda q, k, v, m: attention(q, k, v, ~m),
        "mask of the first query": lambda q, k, v, m: attention(q, k, v, m[:, :, :1].expand_as(m)),
        "mask of the first sample": lambda q, k, v, m: attention(q, k, v, m[:1].expand_as(m)),
        "causal": lambda q, k, v, m: attention(q, k, v, torch.ones_like(m).tril()),
        "no scale": lambda q, k, v, m: attention(q, k, v, m, 1.0),
        "scale of another width": lambda q, k, v, m: attention(q, k, v, m, 16**-0.5),
        "weak mask": lambda q, k, v, m: attention(q, k, v, m, low=-4.0),
        "softmax over queries": lambda q, k, v, m: torch.softmax(
            ((q @ k.mT).float() * 8**-0.5).masked_fill(~m, -1e4), -2).to(v.dtype) @ v,
        "mask behind the softmax": lambda q, k, v, m: torch.softmax((q @ k.mT).float() * 8**-0.5, -1).to(v.dtype) * m @ v,
        "values of the first head": lambda q, k, v, m: attention(q, k, v[:, :1].expand_as(v), m),
    },
    (0, 1, 2),
)  # fmt: skip


def linear(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.linear(x, w, b)


BIAS = Primitive(
    linear,
    lambda d, s: [
        normal(2, 12, 24, seed=s, dtype=d),
        normal(24, 24, seed=s + 20, dtype=d, scale=0.2),
        normal(24, seed=s + 40, dtype=d),
    ],
    {
        "added in float32": lambda x, w, b: (x.float() @ w.float().t() + b.float()).to(x.dtype),
        "by addmm": lambda x, w, b: torch.addmm(b, x.flatten(0, 1), w.t()).unflatten(0, (x.shape[0], -1)),
    },
    {
        "bias lost": lambda x, w, b: F.linear(x, w),
        "bias twice": lambda x, w, b: F.linear(x, w, b) + b,
        "bias without sign": lambda x, w, b: F.linear(x, w, b.abs()),
        "bias of the first column": lambda x, w, b: F.linear(x, w, b[:1].expand_as(b)),
        "bias for the first sample": lambda x, w, b: torch.cat((F.linear(x[:1], w, b), F.linear(x[1:], w))),
        "bias limited to 4": lambda x, w, b: F.linear(x, w, b.clamp(-4, 4)),
        "weight transposed": lambda x, w, b: F.linear(x, w.t(), b),
        "the first call's bias": remembering(linear, 2),
    },
)  # fmt: skip

PRIMITIVES = {
    "norm": NORM,
    "gelu": GELU,
    "swiglu": SWIGLU,
    "ada_layer_norm": ADA,
    "rope": ROPE,
    "attention": ATTENTION,
    "bias": BIAS,
}
RIGHT = [(name, label) for name, primitive in PRIMITIVES.items() for label in primitive.right]
WRONG = [(name, label) for name, primitive in PRIMITIVES.items() for label in primitive.wrong]
