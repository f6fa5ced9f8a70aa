"""Tracing a pattern the way the model was traced: same decomposition table, functional, nothing tidied away."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
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


def make_tracer(table: dict[Any, Callable[..., Any]], *, sources: bool = False) -> TraceFunction:
    """A trace function for register_replacement that uses exactly `table`, also when it is empty.

    torch's own `fwd_only` takes the table from a callable and, on some versions, an empty one becomes
    Inductor's default: a pattern then holds prims that the model's graph does not have. Mutations are
    functionalised, as AOT autograd does to the model. `sources`
    keeps the line of the pattern that made each
    node, which takes longer.
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
    """`trace`, which traces a function once for each form of its arguments.

    torch traces the function `search` and its replacement again at every site; sites of one form give the same
    graph. That of `search` is only read, so it is given again; of any other a copy is given, with metadata of its
    own, since its nodes go into the model's graph.
    """
    known: dict[Any, torch.fx.GraphModule] = {}

    def traced(fn: Callable[..., Any], args: Sequence[Any], **keywords: Any) -> torch.fx.GraphModule:
        form = _form(args)
        if form is None:
            return trace(fn, args, **keywords)
        if (fn, form) not in known:
            known[fn, form] = trace(fn, args, **keywords)
        return known[fn, form] if fn is search else _again(known[fn, form], args)

    return traced


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


def _form(args: Sequence[Any]) -> tuple[Any, ...] | None:
    """What a trace depends on; None where a size is symbolic or an argument is of another kind."""
    form: list[Any] = []
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
