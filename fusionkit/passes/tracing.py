"""Tracing a pattern as the model is traced, and whether its search function can match at all."""

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
import torch.utils._pytree as pytree
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.shape_prop import _extract_tensor_metadata
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fusionkit.errors import MisuseError

TraceFunction = Callable[..., torch.fx.GraphModule]
Graphs = dict[Any, torch.fx.GraphModule]


def make_tracer(table: Mapping[Any, Callable[..., Any]], *, sources: bool = False) -> TraceFunction:
    """A trace function for register_replacement that uses exactly `table`, even an empty one; equal tables share it.

    torch's own `fwd_only` takes the table from a callable, and on some versions an empty table becomes Inductor's
    default: the pattern then has prims that the model's graph does not have. Mutations are functionalised, as AOT
    autograd does for the model. `sources` records the source line of each node, which takes longer.
    """
    return _tracer(tuple(table.items()), sources)


@functools.cache
def _tracer(rows: tuple[tuple[Any, Callable[..., Any]], ...], sources: bool) -> TraceFunction:
    table = dict(rows)

    def trace(fn: Callable[..., Any], args: Sequence[Any], **_: Any) -> torch.fx.GraphModule:
        with torch.no_grad(), enable_python_dispatcher(), contextlib.ExitStack() as stack:
            if sources:
                stack.enter_context(fx_traceback.preserve_node_meta())
                stack.enter_context(_Lines())
            module = make_fx(fn, table, tracing_mode="real")(*args)
            if any(_mutates(node) for node in module.graph.nodes):
                functional = dispatch_functionalize(fn, FunctionalTensorMode())
                module = make_fx(functional, table, tracing_mode="real")(*args)
        module.graph.eliminate_dead_code()
        module.recompile()
        return module

    return trace


def searched_graphs(trace: TraceFunction, search: Callable[..., Any], device: str) -> Graphs:
    """Where graphs of a search function are kept: for the process if they never change, else for one pass.

    Those of the kit's own never change on cpu. On other devices composite ops depend on the graph that is matched.
    """
    module = getattr(search, "__globals__", {}).get("__name__", "")
    return _lasting(trace) if device == "cpu" and module.startswith("fusionkit.patterns.") else {}


@functools.cache
def _lasting(_trace: TraceFunction) -> Graphs:
    return {}


def remembering(
    trace: TraceFunction, search: Callable[..., Any], searched: Graphs | None = None
) -> TraceFunction:
    """`trace` with a cache: one trace of a function for each form of its arguments (shapes, strides, dtypes, numbers).

    torch traces the search function `search` and its replacement again at every site, and sites of one form give
    the same graph. The graph of `search` is only read, so the cached one is returned; any other is returned as a
    copy with its own metadata, since its nodes are inserted into the model's graph. `searched` keeps the graphs of
    `search` beyond this function.
    """
    known: Graphs = {}
    of_search = known if searched is None else searched

    def traced(fn: Callable[..., Any], args: Sequence[Any], **keywords: Any) -> torch.fx.GraphModule:
        form = form_of(args)
        if form is None:
            return trace(fn, args, **keywords)
        graphs = of_search if fn is search else known
        if (fn, form) not in graphs:
            graphs[fn, form] = trace(fn, args, **keywords)
            if graphs is searched:
                _drop_values(graphs[fn, form])
        return graphs[fn, form] if fn is search else _copied(graphs[fn, form], args)

    return traced


def _drop_values(module: torch.fx.GraphModule) -> None:
    """Let go of the fake tensors of the compile that a graph was traced in."""
    for node in module.graph.nodes:
        node.meta.pop("val", None)
        node.meta.pop("tensor_meta", None)


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
    """Collects the ops that are called, in order and with repetitions, before they run.

    Of a higher-order op, such as auto_functionalized, the op that it calls.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: list[torch._ops.OpOverload] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops += [op for op in (func, *args[:1]) if isinstance(op, torch._ops.OpOverload)]
        return func(*args, **(kwargs or {}))


def _mutates(node: torch.fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and bool(schema.is_mutable)


class _Lines(TorchFunctionMode):
    """Records the calling source line of each torch function in the nodes that the call makes."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
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


class _FirstMutation(TorchDispatchMode):
    """Records the first op that writes into an argument or a view of one, with its source line."""

    supports_higher_order_operators = True

    def __init__(self, arguments: Mapping[str, torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._arguments = arguments
        self.mutation: str | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.mutation is None and isinstance(func, torch._ops.OpOverload) and func._schema.is_mutable:
            given = named_arguments(func, args, kwargs)
            leaves = pytree.tree_leaves([given.get(name) for name in written_arguments(func)])
            written = {leaf.untyped_storage()._cdata for leaf in leaves if isinstance(leaf, torch.Tensor)}
            hit = [n for n, t in self._arguments.items() if t.untyped_storage()._cdata in written]
            if hit:
                frame = calling_frame(sys._getframe(1))
                line = f", line {frame.f_lineno}" if frame is not None else ""
                self.mutation = f"argument '{hit[0]}' in place ({func}{line})"
        return func(*args, **(kwargs or {}))


def named_arguments(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments of one call of an op by their names in its schema."""
    names = (argument.name for argument in op._schema.arguments)
    return dict(zip(names, args, strict=False)) | dict(kwargs or {})


def written_arguments(op: Any) -> list[str]:
    """The names of the arguments that the op's schema marks as written."""
    return [a.name for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write]


def require_searchable(name: str, search: Any, arguments: Mapping[str, Any]) -> None:
    """Run `search` once on `arguments` (fake tensors, numbers for scalars).

    Raises MisuseError when it writes into an argument: the trace loses the write, so that the pattern would match
    another computation. Likewise when it returns anything but tensors, or an argument as its first output: then
    there is no node at which the search could begin (pytorch issue 149879). Errors of `search` itself propagate.
    """
    tensors = {key: value for key, value in arguments.items() if isinstance(value, torch.Tensor)}
    with torch.no_grad(), _FirstMutation(tensors) as first:
        result = search(*arguments.values())
    if first.mutation is not None:
        raise MisuseError(
            f"pattern {name}: pattern() changes {first.mutation}: a search function that mutates matches nothing;"
            " write it without in-place ops"
        )
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    if not outputs or not all(isinstance(output, torch.Tensor) for output in outputs):
        kinds = "nothing" if result is None or not outputs else f"{type(result).__name__} {result!r:.60}"
        raise MisuseError(
            f"pattern {name}: pattern() returns {kinds}, so it matches nothing; return the tensor that its chain"
            " ends in"
        )
    returned = [key for key, value in tensors.items() if value is outputs[0]]
    if returned:
        raise MisuseError(
            f"pattern {name}: pattern() gives back its argument '{returned[0]}', so it matches nothing;"
            " return the tensor that its chain ends in"
        )
