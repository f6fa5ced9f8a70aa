"""Sites that a fused op nearly computes: unusual values alone tell them apart."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from fusionkit.capture.capturing import capture_graphs
from fusionkit.capture.graphs import Capture
from fusionkit.subjects.build import Subject

WIDTH = 24


def norm(
    x: Tensor, gain: Tensor, scale: Callable[[Tensor], Tensor] = lambda m: torch.rsqrt(m + 1e-5)
) -> Tensor:
    h = x.float()
    return gain * (h * scale(h.pow(2).mean(-1, keepdim=True))).to(x.dtype)


SITES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "erf": lambda x, gain, keep: F.gelu(x),
    "sigmoid": lambda x, gain, keep: x * torch.sigmoid(1.702 * x),
    "capped gelu": lambda x, gain, keep: F.gelu(x, approximate="tanh").clamp(max=9.0),
    "limited swiglu": lambda x, gain, keep: (
        F.silu(x.chunk(2, -1)[0].clamp(max=11.0)) * x.chunk(2, -1)[1].clamp(-11.0, 11.0)
    ),
    "clamped": lambda x, gain, keep: norm(x, gain).clamp(-20.0, 20.0),
    "no NaN": lambda x, gain, keep: torch.nan_to_num(norm(x, gain)),
    "soft cap": lambda x, gain, keep: torch.tanh(norm(x, gain) / 30.0) * 30.0,
    "masked": lambda x, gain, keep: norm(x, gain).masked_fill(keep[..., None], 0.0),
    "chosen": lambda x, gain, keep: torch.where(keep[..., None], norm(x, gain), x),
    "least mean": lambda x, gain, keep: norm(x, gain, lambda m: torch.rsqrt(m.clamp(min=1e-5))),
    "doubled": lambda x, gain, keep: norm(x, gain) * 1.0078125,
}


def capture_of(function: Callable[[Tensor, Tensor, Tensor], Tensor], name: str = "near") -> Capture:
    """A model that computes the function on x [3, 6, WIDTH], a gain and a bool mask [3, 6]."""

    class Model(torch.nn.Module):
        def forward(self, x: Tensor, gain: Tensor, keep: Tensor) -> Tensor:
            return function(x + 1, gain, keep) - 1

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 6, WIDTH, generator=generator).bfloat16()
    gain = torch.rand(WIDTH, generator=generator).bfloat16() + 0.5
    keep = torch.rand(3, 6, generator=generator) < 0.3
    return capture_graphs(Subject(model=Model(), inputs=(x, gain, keep), name=name))


def site_nodes(capture: Capture) -> list[str]:
    """The nodes of the site: all but the addition before it and the subtraction behind it."""
    nodes = [node.name for node in capture.graphs[0].nodes if node.op == "call_function"]
    return nodes[1:-1]


FILE = """
import torch

from fusionkit.patterns import PatternBase


def _norm(x, weight, eps):
    h = x.float()
    return weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


class OwnPattern(PatternBase):
    @staticmethod
    def name():
        return "Own"

    @staticmethod
    def inputs():
        x = torch.empty(2, 4, 16, dtype=torch.bfloat16, device="meta")
        mask = torch.empty(2, 4, dtype=torch.bool, device="meta")
        return [x, torch.empty(16, dtype=torch.bfloat16, device="meta"), mask][:{inputs}]

    @staticmethod
    def pattern({arguments}):
        return {pattern}

    @staticmethod
    def replacement({arguments}):
        return {replacement}


OwnPatternGroup = [OwnPattern]
"""
