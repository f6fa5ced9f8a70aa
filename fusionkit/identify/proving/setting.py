"""What the inputs of one call are made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from fusionkit.identify.proving.sizes import Sizes
from fusionkit.identify.scan_file import Site
from fusionkit.identify.source.files import SourceFile


@dataclass(frozen=True, slots=True)
class Manner:
    """How a rotation's operands lie: axes of q, k and x, and of cos and sin ("own": as the file's own class makes them)."""

    operands: str = "B H S D"
    tables: str = "own"


@dataclass(eq=False)
class Setting:
    """One call: sizes, lengths, and the objects that its arguments are read from.

    `width`: last dim of hidden states, as the built module takes it. `generator` draws every input. `guessed`: makers of
    arguments that no recipe knows. `rotated_share`: one part of so many of a head is rotated.
    """

    site: Site
    module: ModuleType
    source: SourceFile
    sizes: Sizes
    batch: int
    length: int
    generator: torch.Generator
    manner: Manner = Manner()
    config: Any = None
    target: Any = None
    width: int = 0
    kept: dict[str, Any] = field(default_factory=dict)
    rotated_share: int = 1
    guessed: Mapping[str, Callable[[Setting], Any]] = field(default_factory=dict)

    def tensor(self, axes: str, scale: float = 1.0) -> torch.Tensor:
        """Normal values, float32; axes as letters: B, S, T = B * S, C, H, K, D, L (keys), F (intermediate), E (experts)."""
        return torch.randn(self.shape(axes.split()), generator=self.generator) * scale

    def shape(self, axes: Sequence[str]) -> list[int]:
        """Numbers of named axes; digits stand for themselves."""
        sizes = self.sizes
        named = {
            "B": self.batch,
            "S": self.length,
            "L": self.length,
            "T": self.batch * self.length,
            "C": self.width or sizes.hidden,
            "H": sizes.heads,
            "K": sizes.kv_heads,
            "D": self.head_dim,
            "F": sizes.intermediate,
            "E": sizes.experts,
            "k": sizes.top_k,
        }
        return [int(axis) if axis.isdigit() else named[axis] for axis in axes]

    @property
    def head_dim(self) -> int:
        """Width of a head: as the rotation's own tables tell it, else the configured one."""
        return int(self.kept.get("head_dim", self.sizes.head_dim))
