"""NodeRecord: one graph node as plain data, for capsules, dumps and tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from fusionkit.capture.foreign import device_name
from fusionkit.capture.literals import encode
from fusionkit.capture.sources import module_path, source_line, source_text
from fusionkit.encoding import Result


@dataclass(frozen=True, slots=True)
class NodeRecord(Result):
    """One node. `target` is the op's full name (`aten.mul.Tensor`), a placeholder's or attribute's own name.

    `args`, `kwargs` and `meta` are encoded as in `capture.literals`; `meta` is null, a tensor's metadata
    {"shape", "stride", "dtype", "device"}, or a list of such for several outputs.
    """

    name: str
    op: str
    target: str
    args: Any
    kwargs: Any
    meta: Any
    users: tuple[str, ...]
    module: str
    source: str
    text: str


def record_node(node: torch.fx.Node) -> NodeRecord:
    """Plain data of `node`, its fake-tensor metadata included."""
    return NodeRecord(
        name=node.name,
        op=node.op,
        target=target_name(node.target),
        args=[encode(item) for item in node.args],
        kwargs={key: encode(item) for key, item in node.kwargs.items()},
        meta=record_value(node.meta.get("val")),
        users=tuple(user.name for user in node.users),
        module=module_path(node),
        source=source_line(node),
        text=source_text(node),
    )


def target_name(target: Any) -> str:
    """`aten.mul.Tensor` for an op, `operator.getitem` for a builtin, the string itself otherwise."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if callable(target):
        module = str(getattr(target, "__module__", "?"))
        return f"{'operator' if module == '_operator' else module}.{getattr(target, '__name__', '?')}"
    return str(target)


def record_value(value: Any) -> Any:
    """Metadata of a fake value as JSON; null where there is none."""
    if isinstance(value, torch.Tensor):
        return {
            "shape": [_size(item) for item in value.shape],
            "stride": [_size(item) for item in value.stride()] if value.layout is torch.strided else None,
            "dtype": str(value.dtype).removeprefix("torch."),
            "device": device_name(value.device),
        }
    if isinstance(value, list | tuple):
        return [record_value(item) for item in value]
    if isinstance(value, torch.SymInt):
        return {"size": str(value)}
    return value if isinstance(value, bool | int | float | str) else None


def _size(item: Any) -> Any:
    return {"size": str(item)} if isinstance(item, torch.SymInt) else int(item)
