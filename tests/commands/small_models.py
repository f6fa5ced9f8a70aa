"""Factories for `module:factory` subjects in the tests of commands."""

import torch
from torch import nn


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


def broken(size, dtype):
    raise ValueError("no such size")
