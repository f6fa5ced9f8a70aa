"""Tracing a pattern as the model is traced: same decomposition table, functionalised, not simplified."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
import torch.fx
import torch.fx.traceback as fx_traceback
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.shape_prop import _extract_tensor_metadata
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

TraceFunction = Callable[..., torch.fx.GraphModule]


def make_tracer(table: dict[Any, Callable[..., Any]], *, sources: bool = False) -> TraceFunction:
    """A trace function for register_replacement that uses exactly `table`, even an empty one.

    torch's own `fwd_only` takes the table from a callable, and on some versions an empty table becomes Inductor's
    default: the pattern then has prims that the model's graph does not have. Mutations are functionalised, as AOT
    autograd does for the model. `sources` records the source line of each node, which takes longer.
    """

    def trace(fn: Callable[..., Any], args: Sequence[Any], **_: Any) -> torch.fx.GraphModule:
        recorded = _recording_lines() if sources else contextlib.nullcontext()
        with torch.no_grad(), enable_python_dispatcher(), recorded:
            module = make_fx(fn, table, tracing_mode="real")(*args)
            if any(_mutates(node) for node in module.graph.nodes):
                functional = dispatch_functionalize(fn, FunctionalTensorMode())
                module = make_fx(functional, table, tracing_mode="real")(*args)
        module.graph.eliminate_dead_code()
        module.recompile()
        return module

    return trace


def remembering(trace: TraceFunction, search: Callable[..., Any]) -> TraceFunction:
    """`trace` with a cache: one trace of a function for each form of its arguments (shapes, strides, dtypes, numbers).

    torch traces the search function `search` and its replacement again at every site, and sites of one form give
    the same graph. The graph of `search` is only read, so the cached one is returned; any other is returned as a
    copy with its own metadata, since its nodes are inserted into the model's graph.
    """
    known: dict[Any, torch.fx.GraphModule] = {}

    def traced(fn: Callable[..., Any], args: Sequence[Any], **keywords: Any) -> torch.fx.GraphModule:
        form = form_of(args)
        if form is None:
            return trace(fn, args, **keywords)
        if (fn, form) not in known:
            known[fn, form] = trace(fn, args, **keywords)
        return known[fn, form] if fn is search else _copied(known[fn, form], args)

    return traced


def _copied(module: torch.fx.GraphModule, args: Sequence[Any]) -> torch.fx.GraphModule:
    """A copy of a traced graph with metadata computed from `args`."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    copy = torch.fx.GraphModule(module, graph)
    with torch.no_grad():
        _Values(copy).run(*args)
    return copy


class _Values(torch.fx.Interpreter):
    """Runs a graph and stores each node's value as its metadata, as tracing does."""

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if "val" in n.meta:
            n.meta["val"] = value
        if "tensor_meta" in n.meta and isinstance(value, torch.Tensor):
            n.meta["tensor_meta"] = _extract_tensor_metadata(value)
        return value


def form_of(args: Sequence[Any]) -> tuple[Any, ...] | None:
    """The properties of the arguments that a trace depends on; None for symbolic sizes and unknown types."""
    form: list[Any] = [torch.get_default_dtype(), torch._C._is_any_autocast_enabled()]
    for arg in args:
        if isinstance(arg, torch.Tensor):
            sizes = (*arg.shape, *arg.stride(), arg.storage_offset())
            if not all(type(size) is int for size in sizes):
                return None
            form.append((arg.dtype, arg.device, arg.requires_grad, arg.dim(), sizes))
        elif isinstance(arg, bool | int | float | str | None):
            form.append((type(arg), arg))
        else:
            return None
    return tuple(form)


class CalledOps(TorchDispatchMode):
    """Collects the ops that are called, in order and with repetitions, before they run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: list[torch._ops.OpOverload] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.ops.append(func)
        return func(*args, **(kwargs or {}))


def _mutates(node: torch.fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and bool(schema.is_mutable)


@contextlib.contextmanager
def _recording_lines() -> Iterator[None]:
    with fx_traceback.preserve_node_meta(), _Lines():
        yield


class _Lines(TorchFunctionMode):
    """Records the calling source line of each torch function in the nodes that the call makes."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        frame = calling_frame(sys._getframe(1))
        if frame is not None:
            place = f'  File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_name}\n'
            fx_traceback.set_stack_trace([place])
        return func(*args, **(kwargs or {}))


def calling_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame outside torch."""
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "torch":
        frame = frame.f_back
    return frame


@contextlib.contextmanager
def unlogged_retraces() -> Iterator[None]:
    """Silence torch's error log of failed retraces: a retrace fails at every site whose shapes do not fit."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
