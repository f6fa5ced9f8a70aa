"""A pattern of one op of another pattern: what stands in the way of the longer one when it is tried first."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from fusionkit.patterns import PatternBase
from mismatches.dispatch import DoesNotApplyError, is_query


class _Calls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not is_query(func):
            self.calls.append((func, tuple(args), dict(kwargs or {})))
        return func(*args, **(kwargs or {}))


def calls_of(pattern: type[PatternBase]) -> list[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """The ops that a pattern dispatches on its example inputs, in order, with their arguments."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        given = [torch.empty(t.shape, dtype=t.dtype) for t in pattern.inputs()]
        with _Calls() as seen:
            pattern.pattern(*arguments_of(pattern, given))
    return seen.calls


def arguments_of(pattern: type[PatternBase], tensors: list[torch.Tensor]) -> list[Any]:
    """The arguments of a pattern: the tensors in order, and the stand-in of each scalar."""
    scalars, left = pattern.scalars(), iter(tensors)
    names = inspect.signature(pattern.pattern).parameters
    return [scalars[name] if name in scalars else next(left) for name in names]


def single_op(pattern: type[PatternBase], at: int) -> type[PatternBase]:
    """One op of `pattern` as a pattern; its replacement is the op and a clone."""
    func, args, kwargs = calls_of(pattern)[at]
    places = [index for index, value in enumerate(args) if isinstance(value, torch.Tensor)]
    scalars = set(pattern.scalars().values())
    if not places or any(isinstance(value, list) or value in scalars for value in _others(args)):
        raise DoesNotApplyError("literals that depend on the site")
    examples = [torch.empty(args[i].shape, dtype=args[i].dtype, device="meta") for i in places]

    def one(*tensors: torch.Tensor) -> Any:
        given = list(args)
        for index, tensor in zip(places, tensors, strict=True):
            given[index] = tensor
        return func(*given, **kwargs)

    def cloned(*tensors: torch.Tensor) -> Any:
        return one(*tensors).clone()

    names = [inspect.Parameter(f"t{i}", inspect.Parameter.POSITIONAL_OR_KEYWORD) for i in range(len(places))]
    for function in (one, cloned):
        function.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    told = f"Taker_{str(func).replace('.', '_')}"
    methods = {"name": lambda: told, "inputs": lambda: examples, "pattern": one, "replacement": cloned}
    return type("Taker", (PatternBase,), {key: staticmethod(value) for key, value in methods.items()})


def _others(args: tuple[Any, ...]) -> list[Any]:
    return [value for value in args if not isinstance(value, torch.Tensor)]
