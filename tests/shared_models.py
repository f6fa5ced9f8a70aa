"""Compiles that several test files look at, made once per process."""

from __future__ import annotations

import functools
import types

import torch
from torch import nn

from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.fusions import pattern_names
from fusionkit.match.hits import default_patterns
from fusionkit.npu.target import use_target
from fusionkit.passes.compiled import Compiled, compile_subject
from fusionkit.subjects.build import Subject
from fusionkit.subjects.load import load_subject
from fusionkit.subjects.site_counts import ExpectedCount, expected_counts


class Block(nn.Module):
    """A torch.nn.RMSNorm, a hand-written one, and a tanh GELU: every form of two primitives in one small model."""

    def __init__(self, width: int = 16, eps: float = 1e-6) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=eps)
        self.gain = nn.Parameter(torch.rand(width) + 0.5)
        self.gelu = nn.GELU(approximate="tanh")
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.gelu(self.norm(x))
        h = normed.to(torch.float32)
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.gain * h.to(normed.dtype)


def fresh_block() -> type[Block]:
    """Block with a forward of its own code.

    dynamo keeps its caches and its recompile limit per code object, for the life of the process: a test that
    compiles must not depend on how often others compiled the same class.
    """
    forward = types.FunctionType(Block.forward.__code__.replace(), Block.forward.__globals__)
    return type("Block", (Block,), {"forward": forward, "__init__": lambda self: Block.__init__(self)})


def small_subject(dtype: torch.dtype = torch.bfloat16, **changes: object) -> Subject:
    """Block with seeded parameters and one input [2, 6, 16]."""
    torch.manual_seed(0)
    model = fresh_block()().to(dtype).eval()
    fields = {"name": "block", "dtype": str(dtype).removeprefix("torch.")} | changes
    return Subject(model=model, inputs=(torch.randn(2, 6, 16).to(dtype),), **fields)  # type: ignore[arg-type]


class Shared(nn.Module):
    """One block at two paths: `layers.0` and `layers.1`."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList([block, block])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def shared_block() -> Subject:
    """Shared over Block; its author counted the hand-written norms too: 4 rms_norm."""
    torch.manual_seed(0)
    forward = types.FunctionType(Shared.forward.__code__.replace(), Shared.forward.__globals__)
    kind = type(
        "Shared", (Shared,), {"forward": forward, "__init__": lambda self, b: Shared.__init__(self, b)}
    )
    model = kind(fresh_block()()).bfloat16().eval()
    x = torch.randn(2, 6, 16).bfloat16()
    return Subject(model=model, inputs=(x,), expected_sites={"rms_norm": 4}, name="shared")


@functools.cache
def table_subject(name: str, dtype: str = "bfloat16") -> Subject:
    use_target("cpu")
    return load_subject(name, dtype=dtype)


@functools.cache
def counts_of(name: str) -> dict[str, ExpectedCount]:
    return expected_counts(table_subject(name))


@functools.cache
def compiled(name: str, *, plain: bool = False, freezing: bool = False) -> Compiled:
    """The tiny subject compiled with its own patterns, or with none."""
    chosen = () if plain else default_patterns(counts_of(name))
    config = CompilationConfig(fusion_patterns=select_patterns(chosen), freezing=freezing)
    return compile_subject(table_subject(name), config, keep_inputs=True)


ALL = CompilationConfig(fusion_patterns=select_patterns(pattern_names()))
