"""The result of a capture: the graphs of one model, with the breaks, recompiles and notes of its compile."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.fx

from fusionkit.subjects.site_counts import ExpectedCount


@dataclass(frozen=True, slots=True)
class GraphKey:
    """Which graph of a compile: its running number, what it computes, and the compiler's id of its frame."""

    index: int
    kind: str  # "inference", "forward" or "backward"
    compile_id: str


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """One graph in one window; `module` is a private copy with fake-tensor metadata."""

    key: GraphKey
    window: str
    module: torch.fx.GraphModule

    @property
    def nodes(self) -> list[torch.fx.Node]:
        """The nodes in topological order."""
        return list(self.module.graph.nodes)


@dataclass(frozen=True, slots=True)
class Capture:
    """All graphs that one model's compile produced.

    `breaks`: the reason of each graph break. `recompiles`: one line for each frame compiled again.
    `origin` is "torch.compile" (may feed a verdict) or "export". `counts`: the sites of each primitive that were
    counted in the model itself; empty without a count. `torch_version`: the torch that made the graphs.
    `notes`: remarks on the capture. `reading`: stand-ins that the reader of a capsule used; not written to one.
    """

    subject: str
    target: str
    dtype: str
    size: str
    seed: int
    graphs: tuple[CapturedGraph, ...]
    breaks: tuple[str, ...] = ()
    recompiles: tuple[str, ...] = ()
    origin: str = "torch.compile"
    decompositions: str = "none"
    notes: tuple[str, ...] = field(default=())
    counts: Mapping[str, ExpectedCount] = field(default_factory=dict)
    torch_version: str = str(torch.__version__)
    reading: tuple[str, ...] = ()

    def in_window(self, window: str) -> tuple[CapturedGraph, ...]:
        """The graphs of `window`."""
        return tuple(graph for graph in self.graphs if graph.window == window)


def copy_graph_module(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A copy whose graph can be rewritten alone; parameters are shared, node names and metadata kept."""
    return torch.fx.GraphModule(module, copy.deepcopy(module.graph))
