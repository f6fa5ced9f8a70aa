"""Dims and sizes among the arguments of an op, and other ways to write them."""

from __future__ import annotations

import sys
from typing import Any

from mismatches.dispatch import Call, DoesNotApplyError

DIM_NAMES = ("dim", "dims", "dim0", "dim1", "start_dim", "end_dim")
SIZE_NAMES = ("size", "shape", "split_size", "split_sizes", "start", "end", "length", "normalized_shape")


def other_dim(call: Call, index: int) -> Any:
    """The dim (or the first of a list) counted from the other end."""
    value = call.args[index]
    many = isinstance(value, list | tuple)
    dim = value[0] if many else value
    if not isinstance(dim, int):
        raise DoesNotApplyError("no dim")
    tensors = [item for item in _flat(call.args) if hasattr(item, "dim")]
    rank = tensors[0].dim() + (str(call.func) in ("aten.unsqueeze.default", "aten.stack.default"))
    other = dim - rank if dim >= 0 else dim + rank
    return [other, *value[1:]] if many else other


def other_size(call: Call, index: int) -> list[Any]:
    """Other spellings of a size argument that mean the same at every site."""
    name, value = call.names()[index], call.args[index]
    made: list[Any] = []
    if isinstance(value, list | tuple) and name in ("size", "shape") and -1 not in value:
        view = str(call.func) in ("aten.view.default", "aten.reshape.default", "aten.expand.default")
        places = [place for place, size in enumerate(value) if size != 1] if view else []
        made += [[*value[:place], -1, *value[place + 1 :]] for place in places]
    if isinstance(value, list | tuple) and -1 in value and str(call.func) == "aten.view.default":
        whole = call.args[0].numel()
        known = 1
        for size in value:
            known *= size if size != -1 else 1
        made.append([whole // known if size == -1 else size for size in value])
    if str(call.func) == "aten.slice.Tensor" and name == "end":
        length = call.args[0].shape[call.args[1]]
        made.append(length if value >= sys.maxsize else sys.maxsize if value >= length else value - length)
    if str(call.func) == "aten.slice.Tensor" and name == "start" and value != 0:
        made.append(value - call.args[0].shape[call.args[1]])
    return made


def _flat(args: tuple[Any, ...]) -> list[Any]:
    return [item for value in args for item in (value if isinstance(value, list | tuple) else [value])]
