"""The models of the examples: each has one or two sites, and compiles in a few seconds.

`fusionkit explain small_models:norm --pattern dim_literal_pattern.py`, in this folder, asks about the first one.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import nn

Built = tuple[nn.Module, dict[str, Any]]


class Norm(nn.Module):
    """One torch.nn.RMSNorm, and an addition behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(16, eps=1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x`: (..., 16)."""
        y = self.norm(x)
        return x + y


class LoggedRMSNorm(nn.RMSNorm):
    """A norm, written by hand, that gives its scale back as well, for a log."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        """`x`: (..., 16)."""
        h = x.to(torch.float32)
        scale = torch.rsqrt(h.pow(2).mean([x.dim() - 1], True) + 1e-6)
        return (h * scale * self.weight).to(x.dtype), scale


class LoggedNorm(nn.Module):
    """One norm whose scale is an output too."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = LoggedRMSNorm(16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`x`: (..., 16)."""
        y, scale = self.norm(x)
        return x + y, scale


class Gate(nn.Module):
    """A gate on one half of the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x`: (batch, length, 16)."""
        batch, length, _ = x.shape
        value, gate = self.up(x).view(batch, length, 2, 32).unbind(2)
        return value * torch.tanh(gate)


class BrokenNorm(nn.Module):
    """An RMSNorm, written by hand, that looks at a value in its midst."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x`: (..., 16)."""
        mean = x.pow(2).mean(-1, keepdim=True)
        if mean.max().item() > 1e6:
            x = x * 1.0
        return x * torch.rsqrt(mean + 1e-6) * self.weight


class Residual(nn.Module):
    """A sum and its activation, scaled by a number that comes from the sum."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`x`, `y`: of one shape."""
        total = x + y
        scale = total.abs().amax()
        return torch.sigmoid(total) * scale, total


class Rotation(nn.Module):
    """A rotation written as a product of complex tensors."""

    def forward(self, x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
        """`x`: complex (..., 8); `angle`: real (..., 8)."""
        return x * torch.polar(torch.ones_like(angle), angle)


def _halve(out: torch.Tensor, x: torch.Tensor) -> None:
    out.copy_(x / 2)


if not hasattr(torch.ops.small_models, "halve_"):
    LIBRARY = torch.library.Library("small_models", "FRAGMENT")
    LIBRARY.define("halve_(Tensor(a!) half, Tensor x) -> ()")
    LIBRARY.impl("halve_", _halve, "CPU")
    torch.library.register_fake("small_models::halve_", lambda half, x: None, lib=LIBRARY)


class Halved(nn.Module):
    """A custom op that writes into its first argument, and an activation."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x`: of any shape."""
        half = torch.empty_like(x)
        torch.ops.small_models.halve_(half, x)
        return torch.tanh(half)


def norm(size: str, dtype: torch.dtype) -> Built:
    """One RMSNorm site."""
    return Norm().to(dtype), {"x": torch.randn(2, 8, 16, dtype=dtype)}


def logged_norm(size: str, dtype: torch.dtype) -> Built:
    """One RMSNorm site, its scale used twice."""
    return LoggedNorm().to(dtype), {"x": torch.randn(2, 8, 16, dtype=dtype)}


def gate(size: str, dtype: torch.dtype) -> Built:
    """One gate over a view."""
    model = nn.Sequential(OrderedDict(gate=Gate())).to(dtype)
    return model, {"input": torch.randn(2, 8, 16, dtype=dtype)}


def broken_norm(size: str, dtype: torch.dtype) -> Built:
    """One norm, cut by a graph break."""
    return nn.Sequential(OrderedDict(norm=BrokenNorm())).to(dtype), {
        "input": torch.randn(2, 8, 16, dtype=dtype)
    }


def residual(size: str, dtype: torch.dtype) -> Built:
    """One scaled sum."""
    return Residual(), {"x": torch.randn(2, 16, dtype=dtype), "y": torch.randn(2, 16, dtype=dtype)}


def rotation(size: str, dtype: torch.dtype) -> Built:
    """One complex rotation."""
    return Rotation(), {"x": torch.randn(2, 8, dtype=torch.complex64), "angle": torch.randn(2, 8)}


def halved(size: str, dtype: torch.dtype) -> Built:
    """One mutating op, and its activation."""
    return Halved(), {"x": torch.randn(2, 16, dtype=dtype)}
