"""Tracing a pattern the way the model was traced: same decomposition table, functional, nothing tidied away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx

TraceFunction = Callable[..., torch.fx.GraphModule]


def make_tracer(table: dict[Any, Callable[..., Any]], *, sources: bool = False) -> TraceFunction:
    """A trace function for register_replacement that uses exactly `table`, also when it is empty.

    torch's own `fwd_only` takes the table from a callable and, on some versions, an empty one becomes Inductor's default:
    a pattern then holds prims that the model's graph does not have. Mutations are functionalised, as AOT
    autograd does to the model. `sources` keeps the source line of every node, which takes longer.
    """

    def trace(fn: Callable[..., Any], args: Sequence[Any], **_: Any) -> torch.fx.GraphModule:
        with torch.no_grad(), enable_python_dispatcher():
            module = make_fx(fn, table, tracing_mode="real", record_stack_traces=sources)(*args)
            if any(_mutates(node) for node in module.graph.nodes):
                module = make_fx(
                    dispatch_functionalize(fn, FunctionalTensorMode()),
                    table,
                    tracing_mode="real",
                    record_stack_traces=sources,
                )(*args)
        module.graph.eliminate_dead_code()
        module.recompile()
        return module

    return trace


def _mutates(node: torch.fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and bool(schema.is_mutable)
