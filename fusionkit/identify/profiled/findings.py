"""The result of joining a profile to the fused ops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA = "fusionkit.scan-profile/1"

Bound = Literal["memory", "compute", "launch", "unknown"]


@dataclass(frozen=True, slots=True)
class KernelSequence:
    """Kernels that follow each other, by type. `op`: the fused op that does the same, "" where none is known.

    `us`: of all `count` runs together, None where the profile's times are no NPU times; `share`: of the profile's
    total. `bound`: what limits these kernels, `ground`: from which columns that was told. `saved_us`: what a fused
    kernel can save at most, None where there is no ceiling to tell. `line`: of the first kernel in the file.
    """

    op: str
    kernels: tuple[str, ...]
    count: int
    us: float | None
    share: float | None
    bound: Bound
    ground: str
    saved_us: float | None
    line: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        names = ("op", "count", "us", "share", "bound", "ground", "saved_us", "line")
        return {name: getattr(self, name) for name in names} | {"kernels": list(self.kernels)}


@dataclass(frozen=True, slots=True)
class ProfileFindings:
    """What a profile shows: sequences that a fused op does, frequent ones beside, and fused kernels by op.

    `fused`: how many kernels of an op run already; `fused_kernels`: of which types.
    """

    source_name: str
    source: Literal["npu", "cpu"]
    note: str
    total_us: float | None
    known: tuple[KernelSequence, ...]
    frequent: tuple[KernelSequence, ...]
    fused: Mapping[str, int]
    fused_kernels: Mapping[str, str] = field(default_factory=dict)

    def of(self, op: str) -> tuple[KernelSequence, ...]:
        """The sequences that `op` does."""
        return tuple(item for item in self.known if item.op == op)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "schema": SCHEMA,
            "profile": self.source_name,
            "source": self.source,
            "note": self.note,
            "total_us": self.total_us,
            "known": [item.to_dict() for item in self.known],
            "frequent": [item.to_dict() for item in self.frequent],
            "fused": dict(self.fused),
            "fused_kernels": dict(self.fused_kernels),
        }
