"""Tracing a pattern the way the model was traced: same decomposition table, functional, nothing tidied away."""

from __future__ import annotations

import contextlib
import functools
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

TraceFunction = Callable[..., torch.fx.GraphModule]
Graphs = dict[Any, torch.fx.GraphModule]


class Tracer:
    """A trace function for register_replacement that uses exactly `table`, also when it is empty.

    torch's own `fwd_only` takes the table from a callable and, on some versions, an empty one becomes
    Inductor's default: a pattern then holds prims that the model's graph does not have. Mutations are
    functionalised, as AOT autograd does to the model. `sources` keeps the line of the pattern that made each
    node, which takes longer. `searched`: the graphs of the kit's own search functions, by form.
    """

    def __init__(self, table: Mapping[Any, Callable[..., Any]], *, sources: bool) -> None:
        self._table = table
        self._sources = sources
        self.searched: Graphs = {}

    def __call__(self, fn: Callable[..., Any], args: Sequence[Any], **_: Any) -> torch.fx.GraphModule:
        """The graph of `fn` on these arguments (fake tensors, numbers)."""
        recorded = _recording_lines() if self._sources else contextlib.nullcontext()
        with torch.no_grad(), enable_python_dispatcher(), recorded:
            module = make_fx(fn, self._table, tracing_mode="real")(*args)
            if any(_mutates(node) for node in module.graph.nodes):
                functional = dispatch_functionalize(fn, FunctionalTensorMode())
                module = make_fx(functional, self._table, tracing_mode="real")(*args)
        module.graph.eliminate_dead_code()
        module.recompile()
        return module


def make_tracer(table: Mapping[Any, Callable[..., Any]], *, sources: bool = False) -> Tracer:
    """The Tracer of a decomposition table; equal tables have one, and with it the graphs it has searched for."""
    return _tracer(tuple(table.items()), sources)


@functools.cache
def _tracer(rows: tuple[tuple[Any, Callable[..., Any]], ...], sources: bool) -> Tracer:
    return Tracer(dict(rows), sources=sources)


def remembering(
    trace: TraceFunction, search: Callable[..., Any], searched: Graphs | None = None
) -> TraceFunction:
    """`trace`, which traces a function once for each form of its arguments.

    torch traces the function `search` and its replacement again at every site; sites of one form give the same
    graph. That of `search` is only read, so it is given again; of any other a copy is given, with metadata of its
    own, since its nodes go into the model's graph. `searched` keeps the graphs of `search` beyond this function.
    """
    known: Graphs = {}
    of_search = known if searched is None else searched

    def traced(fn: Callable[..., Any], args: Sequence[Any], **keywords: Any) -> torch.fx.GraphModule:
        form = form_of(args)
        if form is None:
            return trace(fn, args, **keywords)
        if fn is search:
            if (fn, form) not in of_search:
                of_search[fn, form] = _without_values(trace(fn, args, **keywords))
            return of_search[fn, form]
        if (fn, form) not in known:
            known[fn, form] = trace(fn, args, **keywords)
        return _again(known[fn, form], args)

    return traced


def _without_values(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A graph that is only read, without the fake tensors of the compile that it was traced in."""
    for node in module.graph.nodes:
        node.meta.pop("val", None)
        node.meta.pop("tensor_meta", None)
    return module


def _again(module: torch.fx.GraphModule, args: Sequence[Any]) -> torch.fx.GraphModule:
    """A copy of a traced graph, its values made anew from `args`."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    copy = torch.fx.GraphModule(module, graph)
    with torch.no_grad():
        _Values(copy).run(*args)
    return copy


class _Values(torch.fx.Interpreter):
    """Runs a graph and keeps each node's value as its metadata, as tracing does."""

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if "val" in n.meta:
            n.meta["val"] = value
        if "tensor_meta" in n.meta and isinstance(value, torch.Tensor):
            n.meta["tensor_meta"] = _extract_tensor_metadata(value)
        return value


def form_of(args: Sequence[Any]) -> tuple[Any, ...] | None:
    """What a trace depends on; None where a size is symbolic or an argument is of another kind."""
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


def _mutates(node: torch.fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and bool(schema.is_mutable)


@contextlib.contextmanager
def _recording_lines() -> Iterator[None]:
    with fx_traceback.preserve_node_meta(), _Lines():
        yield


class _Lines(TorchFunctionMode):
    """Hands the line that called each torch function on to the nodes that the call makes."""

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
    """torch logs as an error each retrace that fails; a pattern meets many places that it does not fit."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
