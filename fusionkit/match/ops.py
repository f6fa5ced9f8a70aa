"""Reading op calls: overload packets, operands by schema name, casts."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized, auto_functionalized_v2

CASTS = frozenset(
    {"aten._to_copy", "aten.to", "prims.convert_element_type", "npu._npu_dtype_cast", "npu.npu_dtype_cast"}
)

# Ops that are common to many fusions (views, copies, plain arithmetic, casts) and so identify none of them.
FORM_OPS = frozenset(
    {
        "aten.view", "aten.reshape", "aten._unsafe_view", "aten.unsqueeze", "aten.squeeze", "aten.t", "aten.transpose",
        "aten.permute", "aten.slice", "aten.select", "aten.expand", "aten.cat", "aten.split", "aten.clone",
        "operator.getitem", "aten.mul", "aten.add", "aten.sub",
    }
    | CASTS
)  # fmt: skip

MATMULS = frozenset({"aten.mm", "aten.addmm", "aten.bmm", "aten.matmul", "aten.linear"})


def packet(node: torch.fx.Node) -> str:
    """`aten.mul` for any of its overloads; the node's kind if it is no call."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target).rsplit(".", 1)[0]
    if is_functionalized(node):
        return f"auto_functionalized.{str(node.args[0]).rsplit('.', 1)[0]}"
    return op_text(node)


def op_text(node: torch.fx.Node) -> str:
    """The op with its overload, as it is written; the node's kind if it is no call."""
    target = node.target
    if target is operator.getitem:
        return "operator.getitem"
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return node.op if node.op != "call_function" else str(getattr(target, "__name__", target))


def is_functionalized(node: torch.fx.Node) -> bool:
    """Whether the node calls a mutating op in one of torch's two functional forms."""
    return node.op == "call_function" and node.target in (auto_functionalized, auto_functionalized_v2)


def is_cast(node: torch.fx.Node) -> bool:
    """Whether the node changes the dtype of one tensor."""
    return node.op == "call_function" and packet(node) in CASTS


def operands(node: torch.fx.Node) -> dict[str, Any]:
    """Arguments by schema name; a list of nodes becomes `name[0]`, `name[1]`, ..."""
    named: dict[str, Any] = {}
    schema = getattr(node.target, "_schema", None)
    for index, value in enumerate(node.args):
        name = schema.arguments[index].name if schema and index < len(schema.arguments) else str(index)
        _spread(named, name, value)
    keywords = _written_once(node) if node.target is auto_functionalized_v2 else node.kwargs
    for name, value in keywords.items():
        _spread(named, name, value)
    return named


def _written_once(node: torch.fx.Node) -> dict[str, Any]:
    """The keywords of an auto_functionalized_v2 by the names of auto_functionalized: each written tensor by its own."""
    bases: Any = node.kwargs.get("_all_bases", ())
    suffix = "_base_index"
    indexes: dict[str, Any] = {
        name[1 : -len(suffix)]: i for name, i in node.kwargs.items() if name.endswith(suffix)
    }
    written = {name: bases[index] for name, index in indexes.items() if isinstance(index, int)}
    return written | {name: value for name, value in node.kwargs.items() if not name.startswith("_")}


def _spread(named: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(value, list | tuple) and any(isinstance(item, torch.fx.Node) for item in value):
        for index, item in enumerate(value):
            named[f"{name}[{index}]"] = item
    else:
        named[name] = value


def node_pairs(one: torch.fx.Graph, other: torch.fx.Graph) -> dict[torch.fx.Node, torch.fx.Node] | None:
    """Nodes of `one` -> nodes of `other` by position; None if the op packets differ."""
    ours, theirs = list(one.nodes), list(other.nodes)
    if [packet(node) for node in ours] != [packet(node) for node in theirs]:
        return None
    return dict(zip(ours, theirs, strict=True))


def describe(node: torch.fx.Node) -> str:
    """The op, with the dtype for a cast; a placeholder's name."""
    if node.op != "call_function":
        return str(node.target)
    dtype = node.kwargs.get("dtype") or next((a for a in node.args if isinstance(a, torch.dtype)), None)
    text = op_text(node)
    return f"{text}({str(dtype).removeprefix('torch.')})" if is_cast(node) and dtype is not None else text
