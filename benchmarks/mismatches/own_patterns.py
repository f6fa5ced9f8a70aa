"""Patterns for the forms of own_models: two to eight ops each, with replacements of other ops that compute the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from fusionkit.patterns import PatternBase

HALF = torch.bfloat16


def own(
    name: str, shapes: Sequence[tuple[int, ...]], search: Callable[..., Any], replace: Callable[..., Any]
) -> type[PatternBase]:
    """A pattern class of two functions; the examples are bfloat16 tensors of these shapes."""
    methods: dict[str, Callable[..., Any]] = {
        "name": lambda: f"{name}Pattern_bfloat16",
        "inputs": lambda: [torch.empty(shape, dtype=HALF, device="meta") for shape in shapes],
        "pattern": search,
        "replacement": replace,
    }
    return type(
        f"{name}Pattern", (PatternBase,), {key: staticmethod(value) for key, value in methods.items()}
    )


ROWS = (2, 4, 16)


def hand_gelu(x: torch.Tensor) -> torch.Tensor:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x.pow(3))
    return 0.5 * x * (1.0 + torch.tanh(inner))


def hand_norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    h = x.float()
    h = h * torch.rsqrt(h.square().mean(dim=-1, keepdim=True) + 1e-5)
    return h.to(x.dtype) * scale


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


OwnPatternGroup = [
    own(
        "Gated",
        [ROWS, ROWS],
        lambda gate, up: F.silu(gate) * up,
        lambda gate, up: torch.ops.npu.npu_swiglu(torch.cat([gate, up], -1), -1),
    ),
    own("SquaredRelu", [ROWS], lambda x: F.relu(x).pow(2), lambda x: torch.square(torch.clamp_min(x, 0))),
    own(
        "QuickGelu",
        [ROWS],
        lambda x: x * torch.sigmoid(1.702 * x),
        lambda x: torch.mul(torch.sigmoid(torch.mul(x, 1.702)), x),
    ),
    own(
        "HandGelu",
        [ROWS],
        hand_gelu,
        lambda x: torch.ops.npu.npu_gelu(x, approximate="tanh"),
    ),
    own(
        "HandNorm",
        [ROWS, (16,)],
        hand_norm,
        lambda x, scale: torch.ops.npu.npu_rms_norm(x, scale, 1e-5)[0],
    ),
    own(
        "UnitLength",
        [ROWS],
        lambda x: x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt(),
        lambda x: torch.div(x, torch.sqrt(torch.add(torch.sum(torch.mul(x, x), -1, True), 1e-6))),
    ),
    own(
        "ScaleShift",
        [ROWS, (2, 1, 16), (2, 1, 16)],
        lambda h, scale, shift: h * (1 + scale) + shift,
        lambda h, scale, shift: torch.add(shift, torch.mul(torch.add(scale, 1), h)),
    ),
    own(
        "GatedResidual",
        [ROWS, (2, 1, 16), ROWS],
        lambda x, gate, y: x + gate * y,
        lambda x, gate, y: torch.add(torch.mul(y, gate), x),
    ),
    own(
        "SoftCap",
        [ROWS],
        lambda x: torch.tanh(x / 30.0) * 30.0,
        lambda x: torch.mul(torch.tanh(torch.div(x, 30.0)), 30.0).clone(),
    ),
    own(
        "Rotated",
        [ROWS, (4, 16), (4, 16)],
        rotated,
        lambda x, cos, sin: torch.add(torch.mul(rotated_half(x), sin), torch.mul(cos, x)),
    ),
]


def rotated_half(x: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)
