"""What a replacement changes in the work of a call: which ops run and how many bytes they read and write.

Counted at the dispatcher while the code runs on target cpu: facts of the calls, and no time of any machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fusionkit.profile.op_traits import op_role

FORWARD = "forward"
BOTH_WAYS = "forward and backward"

Entry = tuple[str, tuple[tuple[str, tuple[int, ...]], ...], int]
"""One op call: its name, dtype and shape of each tensor that it takes, and the bytes it reads and writes."""

_ONLY_WRITE = frozenset({"aten::copy_", "aten::fill_", "aten::zero_"})
"""Ops in place that do not read what stood there."""


@dataclass(frozen=True, slots=True)
class Work:
    """Op calls that one side makes and the other does not. `ops`: (name, calls), in order of the first call.

    `bytes`: what they read, each tensor of a call once, and what they write; expanded dimensions count once.
    """

    ops: tuple[tuple[str, int], ...]
    bytes: int

    @property
    def calls(self) -> int:
        """Number of op calls."""
        return sum(count for _, count in self.ops)

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Work:
        """The work that `asdict` told."""
        return cls(tuple((name, count) for name, count in told["ops"]), told["bytes"])


@dataclass(frozen=True, slots=True)
class Traffic:
    """The same call of both sides. `direction`: FORWARD or BOTH_WAYS; `dtype`: of its inputs."""

    direction: str
    dtype: str
    original: Work
    replaced: Work

    @property
    def saves(self) -> bool:
        """Whether the replacement moves fewer bytes, or as many in fewer calls."""
        if self.replaced.bytes != self.original.bytes:
            return self.replaced.bytes < self.original.bytes
        return self.replaced.calls < self.original.calls

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Traffic:
        """The traffic that `asdict` told."""
        sides = {name: Work.from_dict(told[name]) for name in ("original", "replaced")}
        return cls(told["direction"], told["dtype"], **sides)


class Ledger(TorchDispatchMode):
    """Within it, each op that does work is written down; views, allocations and checks do none."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        """Start with none."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.entries: list[Entry] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one operator, and note it."""
        result = func(*args, **(kwargs or {}))
        name = func._schema.name if isinstance(func, torch._ops.OpOverload) else ""
        if _works(name):
            taken = list(_tensors((args, kwargs or {})))
            given = list(_tensors(result))
            read = [
                value
                for value in taken
                if name not in _ONLY_WRITE or all(value is not item for item in given)
            ]
            shapes = tuple((str(value.dtype), tuple(value.shape)) for value in taken)
            self.entries.append((name, shapes, sum(map(_bytes, (*read, *given)))))
        return result


def difference(original: Sequence[Entry], replaced: Sequence[Entry]) -> tuple[Work, Work]:
    """What each side does that the other does not: calls of the same op on the same shapes cancel out."""
    return _left(original, replaced), _left(replaced, original)


def _left(mine: Sequence[Entry], theirs: Sequence[Entry]) -> Work:
    common = Counter(theirs)
    ops: Counter[str] = Counter()
    moved = 0
    for entry in mine:
        if common[entry]:
            common[entry] -= 1
            continue
        ops[entry[0].removeprefix("aten::")] += 1
        moved += entry[2]
    return Work(tuple(ops.items()), moved)


@cache
def _works(name: str) -> bool:
    return op_role(name, ("npu",)) != "transparent"


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    """Every tensor among `values`, each once."""
    seen: set[int] = set()
    for leaf in tree_leaves(values):
        if isinstance(leaf, torch.Tensor) and id(leaf) not in seen:
            seen.add(id(leaf))
            yield leaf


def _bytes(value: torch.Tensor) -> int:
    sizes = (size for size, stride in zip(value.shape, value.stride(), strict=True) if stride or not size)
    return prod(sizes) * value.element_size()
