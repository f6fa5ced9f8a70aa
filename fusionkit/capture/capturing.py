"""Compile and run one subject; capture its graphs, graph breaks, recompiles and dynamic dimensions."""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo
import torch.fx
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.utils import counters, graph_break_reasons

from fusionkit.capture.aot import CompilerFunction, GraphListener, aot_backend
from fusionkit.capture.dynamic import DimWatch, DynamicDim, find_dims, marked
from fusionkit.capture.graphs import Capture, CapturedGraph, GraphKey, copy_graph_module
from fusionkit.errors import FusionKitError, MisuseError
from fusionkit.npu.target import current_target
from fusionkit.subjects.build import Subject
from fusionkit.subjects.load import UserCode
from fusionkit.subjects.source_paths import short_path

# Models of one class share code objects within a process. dynamo keeps two things for each code object that a
# capture must not depend on: the recompile limit, past which a frame silently runs eager, and the guess that a
# size or number that differed between two compiles is dynamic.
_RECOMPILE_LIMIT = 256
_GC_THRESHOLD = 200_000


@dataclass(frozen=True, slots=True)
class CompileOutcome:
    """Result of compiling and running a subject: flat output tensors, one line for each graph break and recompile.

    `model` is the compiled model: calling it again with the subject's inputs compiles nothing. `dynamic` has one
    entry for each marked dimension.
    """

    outputs: tuple[torch.Tensor, ...]
    breaks: tuple[str, ...]
    recompiles: tuple[str, ...]
    model: Callable[..., Any]
    dynamic: tuple[DynamicDim, ...] = ()


def compile_and_run(
    subject: Subject,
    backend: CompilerFunction,
    *,
    train: bool = False,
    calls: int = 1,
    dynamic: Sequence[str] = (),
    has_run: bool = False,
) -> CompileOutcome:
    """Run the model once in eager mode, then `calls` times through `backend`.

    `dynamic`: input dimensions (see capture.dynamic) to keep symbolic where the graph allows it. The eager forward
    comes first because some models build state in it and would break the graph otherwise; `has_run` skips it.
    Raises MisuseError when the model itself fails.
    """
    failed: list[str] = []
    dims = find_dims(subject, dynamic)
    watch = DimWatch(dims)
    before, broken = Counter(counters["graph_break"]), len(graph_break_reasons)
    with torch.set_grad_enabled(train), subject.mode(), _isolated():
        if not has_run:
            with UserCode(f"subject {subject.name}: its plain forward fails with"):
                flat_tensors(call_model(subject.model, subject))
        compiled = torch._dynamo.optimize(
            watch.watching(backend), guard_fail_fn=lambda failure: failed.append(failure.reason)
        )(subject.model)
        with marked(dims), _own_errors_pass():
            outputs = _calls(subject, compiled, calls, train)
    breaks = Counter(counters["graph_break"]) - before
    return CompileOutcome(
        outputs=tuple(out.detach() for out in outputs),
        breaks=tuple(
            f"{_first_line(reason)}{_places_of(reason, broken)} (x{count})"
            for reason, count in sorted(breaks.items())
        ),
        recompiles=tuple(_first_line(reason) for reason in failed),
        model=compiled,
        dynamic=watch.result(),
    )


def _calls(subject: Subject, compiled: Callable[..., Any], calls: int, train: bool) -> list[torch.Tensor]:
    outputs: list[torch.Tensor] = []
    for _ in range(calls):
        outputs = flat_tensors(call_model(compiled, subject))
        if train:
            _backward(subject, outputs)
    return outputs


@contextlib.contextmanager
def _own_errors_pass() -> Iterator[None]:
    """Re-raise a backend's FusionKitError without dynamo's wrapper."""
    try:
        yield
    except BackendCompilerFailed as error:
        if isinstance(error.inner_exception, FusionKitError):
            raise error.inner_exception from None
        raise


def call_model(model: Callable[..., Any], subject: Subject) -> Any:
    """One call with the subject's own inputs."""
    return model(*subject.args, **subject.kwargs)


def flat_tensors(value: Any) -> list[torch.Tensor]:
    """All tensors of a nested output, in order."""
    leaves = torch.utils._pytree.tree_leaves(dict(value) if hasattr(value, "keys") else value)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _backward(subject: Subject, outputs: list[torch.Tensor]) -> None:
    """One backward from the mean of all outputs that have a gradient."""
    means = [out.float().mean() for out in outputs if out.is_floating_point() and out.requires_grad]
    if not means:
        raise MisuseError(f"subject {subject.name}: no output has a gradient; load it with train=True")
    torch.stack(means).sum().backward()


@contextlib.contextmanager
def _isolated() -> Iterator[None]:
    """Isolate one compile from earlier ones (recompile limits, dynamic-shape guesses) and collect garbage less often.

    A big graph is millions of live objects; scanning them again and again takes a tenth of the compile time.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(max(thresholds[0], _GC_THRESHOLD), *thresholds[1:])
    try:
        with torch._dynamo.config.patch(
            recompile_limit=_RECOMPILE_LIMIT,
            accumulated_recompile_limit=64 * _RECOMPILE_LIMIT,
            automatic_dynamic_shapes=False,
        ):
            yield
    finally:
        gc.set_threshold(*thresholds)


def _first_line(text: str) -> str:
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    return lines[0] if lines else "?"


def _places_of(reason: str, start: int) -> str:
    """Where the model's code breaks the graph for this reason: " at file:line", with up to three lines."""
    stacks = [
        item.user_stack
        for item in graph_break_reasons[start:]
        if _first_line(item.reason) == _first_line(reason)
    ]
    lines = dict.fromkeys(f"{short_path(stack[-1].filename)}:{stack[-1].lineno}" for stack in stacks if stack)
    return f" at {', '.join([*lines][:3])}" if lines else ""


class _Collector(GraphListener):
    """Keeps a copy of every graph in every window."""

    def __init__(self) -> None:
        self.graphs: list[CapturedGraph] = []

    def on_window(self, window: str, key: GraphKey, module: torch.fx.GraphModule) -> None:
        self.graphs.append(CapturedGraph(key, window, copy_graph_module(module)))


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
