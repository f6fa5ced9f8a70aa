"""Factories for `module:factory` subjects in the tests of commands."""

import torch
from torch import nn

from fusionkit.subjects.build import Subject


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(16, eps=1e-6)
        self.linear = nn.Linear(16, 16)
        self.gelu = nn.GELU(approximate="tanh")

    def forward(self, x):
        return self.gelu(self.linear(self.norm(x)))


def build(size, dtype):
    torch.manual_seed(0)
    return Model().to(dtype).eval(), {"x": torch.randn(2, 4, 16).to(dtype)}


class HandNorm(nn.Module):
    """An RMSNorm with two casts, which no counter knows and no variant of the kit hits."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(16))

    def forward(self, x):
        scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-5)
        return (x.float() * scale).type_as(x) * self.gain


def beside_uncounted(size, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(Model(), HandNorm())
    return model.to(dtype).eval(), (torch.randn(2, 4, 16).to(dtype),)


class KitNorm(HandNorm):
    """A hand-written RMSNorm that a variant of the kit hits, and that no counter knows."""

    def forward(self, x):
        h = x.to(torch.float32)
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.gain * h.to(x.dtype)


def hand_normed(size, dtype):
    torch.manual_seed(0)
    return KitNorm().to(dtype).eval(), (torch.randn(2, 4, 16).to(dtype),)


def declared(size, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(KitNorm(), nn.RMSNorm(16, eps=1e-6), KitNorm()).to(dtype).eval()
    return Subject(model, (torch.randn(2, 4, 16).to(dtype),), expected_sites={"rms_norm": 3})


def without_sites(size, dtype):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU()).to(dtype).eval(), (torch.randn(2, 16).to(dtype),)


def broken(size, dtype):
    raise ValueError("no such size")
