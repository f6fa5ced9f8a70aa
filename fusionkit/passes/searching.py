"""Whether a search function can match at all: it must return tensors and not mutate its arguments."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from fusionkit.errors import MisuseError
from fusionkit.passes.tracing import calling_frame


class _FirstMutation(TorchDispatchMode):
    """Records the first op that writes into an argument or a view of one, with its source line."""

    def __init__(self, arguments: Mapping[str, torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._arguments = arguments
        self.mutation: str | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if self.mutation is None and func._schema.is_mutable:
            written = {
                value.untyped_storage()._cdata
                for value in _written(func._schema, args, kwargs or {})
                if isinstance(value, torch.Tensor)
            }
            hit = [n for n, t in self._arguments.items() if t.untyped_storage()._cdata in written]
            if hit:
                frame = calling_frame(sys._getframe(1))
                line = f", line {frame.f_lineno}" if frame is not None else ""
                self.mutation = f"argument '{hit[0]}' in place ({func}{line})"
        return func(*args, **(kwargs or {}))


def _written(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The values of the arguments that the schema marks as mutated."""
    given = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | dict(kwargs)
    values = [
        given.get(a.name) for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write
    ]
    return pytree.tree_leaves(values)


def require_searchable(name: str, search: Any, arguments: Mapping[str, Any]) -> None:
    """Run `search` once on `arguments` (fake tensors, numbers for scalars).

    Raises MisuseError when it writes into an argument: the trace loses the write, so that the pattern would match
    another computation. Likewise when it returns anything but tensors, or an argument as its first output: then
    there is no node at which the search could begin (pytorch issue 149879). Errors of `search` itself propagate.
    """
    tensors = {key: value for key, value in arguments.items() if isinstance(value, torch.Tensor)}
    with torch.no_grad(), _FirstMutation(tensors) as first:
        result = search(*arguments.values())
    if first.mutation is not None:
        raise MisuseError(
            f"pattern {name}: pattern() changes {first.mutation}: a search function that mutates matches nothing;"
            " write it without in-place ops"
        )
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    if not outputs or not all(isinstance(output, torch.Tensor) for output in outputs):
        kinds = "nothing" if result is None or not outputs else f"{type(result).__name__} {result!r:.60}"
        raise MisuseError(
            f"pattern {name}: pattern() returns {kinds}, so it matches nothing; return the tensor that its chain"
            " ends in"
        )
    returned = [key for key, value in tensors.items() if value is outputs[0]]
    if returned:
        raise MisuseError(
            f"pattern {name}: pattern() gives back its argument '{returned[0]}', so it matches nothing;"
            " return the tensor that its chain ends in"
        )
