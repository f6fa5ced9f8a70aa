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
