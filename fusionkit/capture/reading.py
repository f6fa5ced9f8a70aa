"""Reading a capsule: JSON to graphs with fake metadata. Nothing in the file is executed.

Targets resolve only in torch.ops and a small table of builtins. Ops and devices that this process lacks get
stand-ins (see `foreign`), listed in the capture's `reading`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.fx
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from fusionkit.capture.capsule import SCHEMA
from fusionkit.capture.counted import read_counts
from fusionkit.capture.foreign import NPU_SLOT, define_missing_ops, stands_on_slot
from fusionkit.capture.graphs import Capture, CapturedGraph, GraphKey
from fusionkit.capture.literals import decode
from fusionkit.errors import MisuseError
from fusionkit.store import read_json

_OPERATORS = ("getitem", "add", "sub", "mul", "floordiv", "mod", "truediv", "neg", "eq", "ge", "gt", "le", "lt")  # fmt: skip
_BUILTINS: dict[str, Callable[..., Any]] = {
    f"operator.{name}": getattr(operator, name) for name in _OPERATORS
} | {"torch.sym_max": torch.sym_max, "torch.sym_min": torch.sym_min, "torch.sym_not": torch.sym_not}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def read_capsule(path: Path) -> Capture:
    """Read a capsule file. Raises MisuseError naming the file and the part that cannot be used."""
    data = read_json(path)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise MisuseError(f"{path}: not a capsule of schema {SCHEMA}; write one with `fusionkit capture`")
    try:
        return _read_capture(data)
    except MisuseError as error:
        raise MisuseError(f"{path}: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        what = (str(error).splitlines() or ["?"])[0]
        raise MisuseError(
            f"{path}: damaged capsule ({type(error).__name__}: {what}); capture it again"
        ) from error


def _read_capture(data: dict[str, Any]) -> Capture:
    reading = define_missing_ops(data.get("ops", {}))
    graphs = tuple(_read_graph(graph, data.get("symbols", {})) for graph in data["graphs"])
    if any(stands_on_slot(node) for graph in graphs for node in graph.nodes):
        reading.append(f"device npu is read as {NPU_SLOT}, its slot in a torch without torch_npu")
    return Capture(
        subject=str(data["subject"]),
        target=str(data["target"]),
        dtype=str(data["dtype"]),
        size=str(data["size"]),
        seed=int(data["seed"]),
        graphs=graphs,
        breaks=tuple(data["breaks"]),
        recompiles=tuple(data["recompiles"]),
        origin=str(data["origin"]),
        decompositions=str(data["decompositions"]),
        notes=tuple(str(note) for note in data["notes"]),
        counts=read_counts(data.get("sites", {})),
        torch_version=str(data["torch"]),
        reading=tuple(reading),
    )


def resolve_target(op: str, name: str) -> Any:
    """The callable for a recorded target; placeholders and attributes keep their name."""
    if op in ("placeholder", "get_attr", "output"):
        return name
    if op != "call_function":
        raise MisuseError(f"node kind {op} cannot stand in a capsule")
    if name in _BUILTINS:
        return _BUILTINS[name]
    parts = name.split(".")
    if len(parts) != 3:
        raise MisuseError(f"target {name} is neither an op nor an allowed builtin")
    try:
        return getattr(getattr(getattr(torch.ops, parts[0]), parts[1]), parts[2])
    except AttributeError as error:
        raise MisuseError(f"op {name} is unknown here and the capsule holds no schema for it") from error


def _read_graph(data: dict[str, Any], hints: dict[str, int]) -> CapturedGraph:
    environment = ShapeEnv()
    mode = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
    symbols = {
        name: environment.create_symintnode(
            environment.create_symbol(
                int(hint),
                source=ConstantSource(f"capsule_{name}"),
                dynamic_dim=DimDynamic.DYNAMIC,
                constraint_dim=None,
            ),
            hint=int(hint),
        )
        for name, hint in hints.items()
    }
    graph = torch.fx.Graph()
    nodes: dict[str, torch.fx.Node] = {}
    root = torch.nn.Module()
    for record in data["nodes"]:
        args = tuple(
            decode(item, nodes.__getitem__, lambda text: parse_size(text, symbols)) for item in record["args"]
        )
        kwargs = {
            key: decode(item, nodes.__getitem__, lambda text: parse_size(text, symbols))
            for key, item in record["kwargs"].items()
        }
        target = resolve_target(record["op"], record["target"])
        kwargs = _in_schema_order(target, kwargs)
        node = graph.create_node(record["op"], target, args, kwargs, name=record["name"])
        if node.name != record["name"]:
            node._rename(record["name"])
        nodes[record["name"]] = node
        node.meta["val"] = _read_value(record["meta"], mode, symbols)
        if record["op"] == "get_attr":
            root.register_buffer(str(target), node.meta["val"], persistent=False)
        _restore_source(node, record)
    key = GraphKey(int(data["index"]), str(data["kind"]), str(data["compile_id"]))
    return CapturedGraph(key, str(data["window"]), torch.fx.GraphModule(root, graph))


def _in_schema_order(target: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """`kwargs` in the order of the op's schema: JSON sorts keys, and torch's matcher compares their order."""
    schema = getattr(target, "_schema", None)
    order = [argument.name for argument in schema.arguments] if schema is not None else []
    return {name: kwargs[name] for name in dict.fromkeys([*order, *kwargs]) if name in kwargs}


def _restore_source(node: torch.fx.Node, record: dict[str, Any]) -> None:
    """Give the node its module path and source line in the compiler's own spelling."""
    if record["module"]:
        node.meta["nn_module_stack"] = {"capsule": (record["module"], "")}
    if record["source"]:
        name, line = record["source"].rsplit(":", 1)
        node.meta["stack_trace"] = f'  File "{name}", line {line}, in forward\n    {record["text"]}\n'


def _read_value(meta: Any, mode: FakeTensorMode, symbols: dict[str, Any]) -> Any:
    if isinstance(meta, list):
        return [_read_value(item, mode, symbols) for item in meta]
    if not isinstance(meta, dict):
        return meta
    if "size" in meta:
        return parse_size(meta["size"], symbols)
    dtype = decode({"dtype": meta["dtype"]}, lambda _: _no_node(), lambda _: None)
    device = decode({"device": meta["device"]}, lambda _: _no_node(), lambda _: None)
    shape = [_dimension(item, symbols) for item in meta["shape"]]
    stride = None if meta["stride"] is None else [_dimension(item, symbols) for item in meta["stride"]]
    with mode:
        if stride is None:
            return torch.empty(shape, dtype=dtype, device=device)
        return torch.empty_strided(shape, stride, dtype=dtype, device=device)


def _no_node() -> torch.fx.Node:
    raise MisuseError("a node stands where a literal is expected")


def _dimension(item: Any, symbols: dict[str, Any]) -> Any:
    return parse_size(item["size"], symbols) if isinstance(item, dict) else int(item)


def parse_size(text: str, symbols: dict[str, Any]) -> Any:
    """A symbolic size such as `s0*2 + 1`, by syntax: names, whole numbers, + - * // % and minus."""
    try:
        return _evaluate(ast.parse(text.strip(), mode="eval").body, symbols)
    except (SyntaxError, KeyError) as error:
        raise MisuseError(f"size expression '{text}' is not understood") from error


def _evaluate(tree: ast.expr, symbols: dict[str, Any]) -> Any:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return tree.value
    if isinstance(tree, ast.Name):
        return symbols[tree.id]
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return -_evaluate(tree.operand, symbols)
    if isinstance(tree, ast.BinOp) and type(tree.op) in _ARITHMETIC:
        return _ARITHMETIC[type(tree.op)](_evaluate(tree.left, symbols), _evaluate(tree.right, symbols))
    raise SyntaxError(ast.dump(tree))
