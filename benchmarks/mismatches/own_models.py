"""Small models as users write them: plain modules with hand-written forms, each of which is one or two sites.

`build` is the subject. The weights are random; the sizes are those of no library's model.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

WIDTH = 24


class GatedMlp(nn.Module):
    """silu(gate) * up between three linears."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class SquaredRelu(nn.Module):
    """relu squared, as in Primer."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.relu(self.up(x)).pow(2))


class QuickGelu(nn.Module):
    """x * sigmoid(1.702 x), as in CLIP."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(1.702 * x)


class HandGelu(nn.Module):
    """The tanh form of GELU, written out."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x.pow(3))
        return 0.5 * x * (1.0 + torch.tanh(inner))


class HandNorm(nn.Module):
    """An RMSNorm written by hand, in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.float()
        h = h * torch.rsqrt(h.square().mean(dim=-1, keepdim=True) + 1e-5)
        return h.to(x.dtype) * self.scale


class UnitLength(nn.Module):
    """Rows divided by their length, as for queries and keys."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


class Modulated(nn.Module):
    """Scale and shift from a condition, and a gated residual."""

    def __init__(self) -> None:
        super().__init__()
        self.condition, self.inner = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        scale, shift, gate = self.condition(c).unsqueeze(1).chunk(3, dim=-1)
        h = F.layer_norm(x, (WIDTH,)) * (1 + scale) + shift
        return x + gate * self.inner(h)


class SoftCap(nn.Module):
    """Scores capped by tanh."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x / 30.0) * 30.0


class Rotated(nn.Module):
    """A rotation of halves by tables that the caller gives."""

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-b, a), dim=-1) * sin


class Own(nn.Module):
    """One of each."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp, self.primer = HandNorm(), GatedMlp(), SquaredRelu()
        self.quick, self.gelu, self.unit = QuickGelu(), HandGelu(), UnitLength()
        self.modulated, self.cap, self.rotated = Modulated(), SoftCap(), Rotated()
        self.mix = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))

    def forward(self, x: torch.Tensor, c: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.mlp(self.norm(x))
        x = self.primer(x) + x
        x = self.mix[0](self.quick(self.mix[1](x)))
        x = self.mix[2](self.gelu(self.mix[3](x)))
        x = self.modulated(x, c)
        x = self.rotated(self.unit(self.mix[4](x)), cos, sin)
        return self.cap(self.mix[5](x))


def build(_: str, dtype: torch.dtype) -> tuple[nn.Module, dict[str, Any]]:
    """The model and its inputs; one size."""
    inputs = {
        "x": torch.randn(2, 10, WIDTH),
        "c": torch.randn(2, WIDTH),
        "cos": torch.randn(10, WIDTH),
        "sin": torch.randn(10, WIDTH),
    }
    return Own().to(dtype), {name: value.to(dtype) for name, value in inputs.items()}
