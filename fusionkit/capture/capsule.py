"""The portable capsule: all graphs of a subject as JSON, without weights; written here, read in `reading`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.fx

from fusionkit.capture.counted import counts_dict
from fusionkit.capture.graphs import Capture, CapturedGraph
from fusionkit.capture.node_records import record_node
from fusionkit.store import write_json

SCHEMA = "fusionkit.capsule/1"


def capsule_dict(capture: Capture) -> dict[str, Any]:
    """The capsule of a capture: schema, origin, graphs with nodes, schemas of ops outside aten, symbols.

    `sites` holds the capture's counted sites and is left out where there are none.
    """
    counted = {"sites": counts_dict(capture.counts)} if capture.counts else {}
    return {
        "schema": SCHEMA,
        "origin": capture.origin,
        "subject": capture.subject,
        "target": capture.target,
        "dtype": capture.dtype,
        "size": capture.size,
        "seed": capture.seed,
        "decompositions": capture.decompositions,
        "torch": capture.torch_version,
        "breaks": list(capture.breaks),
        "recompiles": list(capture.recompiles),
        "notes": list(capture.notes),
        "ops": _foreign_schemas(capture.graphs),
        "symbols": _symbols(capture.graphs),
        "graphs": [_graph_dict(graph) for graph in capture.graphs],
    } | counted


def write_capsule(capture: Capture, path: Path) -> Path:
    """Write the capsule atomically and return its path."""
    return write_json(path, capsule_dict(capture))


def graph_text(graph: CapturedGraph) -> str:
    """The graph as readable text, one node a line: name, dtype, shape, call, module, source."""
    return "\n".join(_node_line(node) for node in graph.nodes) + "\n"


def _graph_dict(graph: CapturedGraph) -> dict[str, Any]:
    return {
        "index": graph.key.index,
        "kind": graph.key.kind,
        "compile_id": graph.key.compile_id,
        "window": graph.window,
        "nodes": [record_node(node).to_dict() for node in graph.nodes],
    }


def _foreign_schemas(graphs: tuple[CapturedGraph, ...]) -> dict[str, str]:
    """Schema string of every op outside aten and prims, so that a reader without it can define it."""
    targets = {node.target for graph in graphs for node in graph.nodes}
    ops = [target for target in targets if isinstance(target, torch._ops.OpOverload)]
    return {str(op): str(op._schema) for op in sorted(ops, key=str) if op.namespace not in ("aten", "prims")}


def _symbols(graphs: tuple[CapturedGraph, ...]) -> dict[str, int]:
    """Hint of every free symbol that a symbolic size uses."""
    hints: dict[str, int] = {}
    for value in (node.meta.get("val") for graph in graphs for node in graph.nodes):
        for size in value.shape if isinstance(value, torch.Tensor) else [value]:
            if isinstance(size, torch.SymInt):
                known = size.node.shape_env.backed_var_to_val
                hints |= {
                    str(name): int(known[name]) for name in size.node.expr.free_symbols if name in known
                }
    return dict(sorted(hints.items()))


def _node_line(node: torch.fx.Node) -> str:
    value = node.meta.get("val")
    form = f"{value.dtype}{list(value.shape)}" if isinstance(value, torch.Tensor) else ""
    record = record_node(node)
    call = node.format_node() or f"output {node.args}"
    place = " ".join(part for part in (record.module, record.source) if part)
    return f"{call}  # {form.removeprefix('torch.')}  {place}".rstrip()
