"""Reading op calls: packets, operands by schema name, casts, the ops that a fusion ends in."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

CASTS = frozenset(
    {"aten._to_copy", "aten.to", "prims.convert_element_type", "npu._npu_dtype_cast", "npu.npu_dtype_cast"}
)

# Ops that move or rename data and so say little about which fusion a chain belongs to.
FORM_OPS = frozenset(
    {
        "aten.view", "aten.reshape", "aten._unsafe_view", "aten.unsqueeze", "aten.squeeze", "aten.t", "aten.transpose",
        "aten.permute", "aten.slice", "aten.select", "aten.expand", "aten.cat", "aten.split", "aten.clone",
        "operator.getitem", "aten.mul", "aten.add", "aten.sub",
    }
    | CASTS
)  # fmt: skip


def packet(node: torch.fx.Node) -> str:
    """`aten.mul` for any overload of it; the node kind where the node calls nothing."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target).rsplit(".", 1)[0]
    if target is operator.getitem:
        return "operator.getitem"
    return node.op if node.op != "call_function" else str(getattr(target, "__name__", target))


def is_cast(node: torch.fx.Node) -> bool:
    """Whether the node changes the dtype of one tensor."""
    return node.op == "call_function" and packet(node) in CASTS


def operands(node: torch.fx.Node) -> dict[str, Any]:
    """Arguments by schema name; a list of tensors is spread over `name[0]`, `name[1]`, ..."""
    named: dict[str, Any] = {}
    schema = getattr(node.target, "_schema", None)
    for index, value in enumerate(node.args):
        name = schema.arguments[index].name if schema and index < len(schema.arguments) else str(index)
        _spread(named, name, value)
    for name, value in node.kwargs.items():
        _spread(named, name, value)
    return named


def _spread(named: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(value, list | tuple) and any(isinstance(item, torch.fx.Node) for item in value):
        for index, item in enumerate(value):
            named[f"{name}[{index}]"] = item
    else:
        named[name] = value


def describe(node: torch.fx.Node) -> str:
    """The op, with the dtype for a cast; a placeholder's name."""
    if node.op != "call_function":
        return str(node.target)
    dtype = node.kwargs.get("dtype") or next((a for a in node.args if isinstance(a, torch.dtype)), None)
    text = str(node.target) if isinstance(node.target, torch._ops.OpOverload) else packet(node)
    return f"{text}({str(dtype).removeprefix('torch.')})" if is_cast(node) and dtype is not None else text
