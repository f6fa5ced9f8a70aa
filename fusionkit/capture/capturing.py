"""The graphs of a subject in every window, untouched by any pattern."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.fx

from fusionkit.capture.aot import aot_backend
from fusionkit.capture.compiling import CompileOutcome, compile_and_run
from fusionkit.capture.graphs import Capture, CapturedGraph, GraphKey, copy_graph_module
from fusionkit.errors import MisuseError
from fusionkit.npu.target import current_target
from fusionkit.subjects.build import Subject


class _Collector:
    """Keeps a copy of every graph in every window."""

    def __init__(self) -> None:
        self.graphs: list[CapturedGraph] = []

    def on_window(self, window: str, key: GraphKey, module: torch.fx.GraphModule) -> None:
        self.graphs.append(CapturedGraph(key, window, copy_graph_module(module)))

    def on_call(self, key: GraphKey, inputs: Sequence[Any]) -> None:
        """Do nothing: a capture has no tensor values."""


def capture_graphs(
    subject: Subject,
    *,
    decompositions: str = "none",
    freezing: bool = False,
    train: bool = False,
    dynamic: Sequence[str] = (),
) -> Capture:
    """Compile `subject` without patterns and return its graphs, before freezing and, with `freezing`, after it.

    `train` captures forward and backward. `dynamic` names the dimensions to keep symbolic, `INPUT:DIM` or `DIM`;
    the capture's notes list which stayed symbolic, and the source line that specialised each of the others.
    Raises MisuseError when no graph was captured.
    """
    collector = _Collector()
    backend = aot_backend(collector, decompositions=decompositions, freezing=freezing)
    outcome = compile_and_run(subject, backend, train=train, dynamic=dynamic)
    return capture_of(subject, collector.graphs, outcome, decompositions)


def capture_of(
    subject: Subject, graphs: Sequence[CapturedGraph], outcome: CompileOutcome, decompositions: str
) -> Capture:
    """The Capture of a compile that produced `graphs`. Raises MisuseError when there are none."""
    if not graphs:
        reasons = "; ".join(outcome.breaks) or (
            "the compiler gave no reason: past its recompile limit it runs a class eager for good; use a new process"
        )
        raise MisuseError(f"subject {subject.name}: no graph was captured ({reasons})")
    return Capture(
        subject=subject.name,
        target=current_target() or "none",
        dtype=subject.dtype,
        size=subject.size,
        seed=subject.seed,
        graphs=tuple(graphs),
        breaks=outcome.breaks,
        recompiles=outcome.recompiles,
        decompositions=decompositions,
        notes=tuple(item.describe(graphs) for item in outcome.dynamic),
    )
