"""A dispatch mode that changes the k-th op that a pattern calls, and keeps a record of what was called instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class DoesNotApplyError(Exception):
    """The operator has nothing to change at this op."""


@dataclass(slots=True)
class Call:
    """The op at `position` of a pattern, as it is called: what an operator changes."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    position: int
    seed: int
    mode: Mutating

    def make(self, args: tuple[Any, ...] | None = None, kwargs: Mapping[str, Any] | None = None) -> Any:
        """The call itself, with other arguments where some are given."""
        return self.func(
            *(self.args if args is None else args), **(self.kwargs if kwargs is None else kwargs)
        )

    def one_of(self, options: list[Any]) -> Any:
        """The seed's choice. Raises DoesNotApplyError when there is none."""
        if not options:
            raise DoesNotApplyError(f"nothing to choose at op {self.position} ({self.func})")
        return options[self.seed % len(options)]

    def example(self) -> tuple[Any, ...]:
        """The arguments that this op has on the pattern's own example inputs."""
        found = self.mode.examples.get(self.position)
        if found is None:
            self.mode.examples[self.position] = found = self.args
        return found

    def tensors(self) -> list[int]:
        """The places of the tensor arguments."""
        return [index for index, value in enumerate(self.args) if isinstance(value, torch.Tensor)]

    def names(self) -> list[str]:
        """The schema's names of the positional arguments."""
        return [argument.name for argument in self.func._schema.arguments][: len(self.args)]


Change = Callable[[Call], Any]


@dataclass(frozen=True, slots=True)
class Event:
    """One op that was called: at which op of the original, and whether by an operator."""

    position: int
    func: Any
    changed: bool


@dataclass(slots=True)
class _Swap:
    old: torch.Tensor
    new: torch.Tensor


class Mutating(TorchDispatchMode):
    """Counts the ops that are called and hands some of them to an operator."""

    def __init__(
        self, changes: Mapping[int, tuple[Change, int]], examples: dict[int, tuple[Any, ...]] | None = None
    ) -> None:
        super().__init__()
        self.examples = {} if examples is None else examples
        self.changes = changes
        self.position = -1
        self.events: list[Event] = []
        self.swap: _Swap | None = None

    def swap_next(self, old: torch.Tensor, new: torch.Tensor) -> None:
        """Give `new` for `old` in the next call that takes it, once."""
        self.swap = _Swap(old, new)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_query(func):
            return func(*args, **(kwargs or {}))
        self.position += 1
        args, kwargs = self._swapped(tuple(args)), dict(kwargs or {})
        found = self.changes.get(self.position)
        with _Recording(self, self.position, found is not None):
            if found is None:
                return func(*args, **kwargs)
            change, seed = found
            return change(Call(func, args, kwargs, self.position, seed, self))

    def _swapped(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.swap is None:
            return args
        made = list(args)
        for index, value in enumerate(made):
            if value is self.swap.old:
                made[index], self.swap = self.swap.new, None
                break
        return tuple(made)


class _Recording(TorchDispatchMode):
    """Writes down what is called while one op of the original is dealt with."""

    def __init__(self, mode: Mutating, position: int, changed: bool) -> None:
        super().__init__()
        self.mode, self.place, self.changed = mode, position, changed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_query(func):
            return func(*args, **(kwargs or {}))
        with self:  # a composite op leaves no node of its own
            parts = func.decompose(*args, **(kwargs or {}))
        if parts is not NotImplemented:
            return parts
        self.mode.events.append(Event(self.place, func, self.changed))
        return func(*args, **(kwargs or {}))


def is_query(func: Any) -> bool:
    """Whether a call asks for a tensor's device or size: no node comes of it."""
    return bool(func.namespace == "prim")
