"""Tracing a pattern the way the model was traced: same decomposition table, functional, nothing tidied away."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import torch
import torch.fx
import torch.fx.traceback as fx_traceback
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
from torch.export.exported_program import _override_composite_implicit_decomp
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

TraceFunction = Callable[..., torch.fx.GraphModule]

# Composite ops that torch takes apart on the CPU and torch_npu has kernels of its own for, so that a graph
# for the NPU holds them whole. In a process with torch_npu this is so by itself; a graph that was read from a
# file stands on device meta, and its patterns are traced there, with these ops kept.
NPU_WHOLE_OPS: tuple[Any, ...] = (
    torch.ops.aten.matmul.default,
    torch.ops.aten.softmax.int,
    torch.ops.aten.where.default,
    torch.ops.aten.repeat_interleave.self_int,
    torch.ops.aten.repeat_interleave.self_Tensor,
    torch.ops.aten.one_hot.default,
    torch.ops.aten.argsort.default,
    torch.ops.aten.argsort.stable,
    torch.ops.aten.isclose.default,
    torch.ops.aten.isfinite.default,
    torch.ops.aten.adaptive_avg_pool2d.default,
    torch.ops.aten.log_sigmoid.default,
    torch.ops.aten.l1_loss.default,
    torch.ops.aten.kl_div.default,
    torch.ops.aten.cdist.default,
    torch.ops.aten.pdist.default,
)


def make_tracer(table: dict[Any, Callable[..., Any]], *, sources: bool = False) -> TraceFunction:
    """A trace function for register_replacement that uses exactly `table`, also when it is empty.

    torch's own `fwd_only` takes the table from a callable and, on some versions, an empty one becomes
    Inductor's default: a pattern then holds prims that the model's graph does not have. Mutations are
    functionalised, as AOT autograd does to the model. Arguments on device meta stand for an NPU's. `sources`
    keeps the line of the pattern that made each
    node, which takes longer.
    """

    def trace(fn: Callable[..., Any], args: Sequence[Any], **_: Any) -> torch.fx.GraphModule:
        recorded = _recording_lines() if sources else contextlib.nullcontext()
        with torch.no_grad(), _npu_forms(args), enable_python_dispatcher(), recorded:
            module = make_fx(fn, table, tracing_mode="real")(*args)
            if any(_mutates(node) for node in module.graph.nodes):
                functional = dispatch_functionalize(fn, FunctionalTensorMode())
                module = make_fx(functional, table, tracing_mode="real")(*args)
        module.graph.eliminate_dead_code()
        module.recompile()
        return module

    return trace


def _npu_forms(args: Sequence[Any]) -> contextlib.AbstractContextManager[Any]:
    """Keep what an NPU keeps whole, where the arguments stand for an NPU's."""
    if not any(isinstance(arg, torch.Tensor) and arg.device.type == "meta" for arg in args):
        return contextlib.nullcontext()
    return _override_composite_implicit_decomp(dict.fromkeys(NPU_WHOLE_OPS, _kept))


def _kept(*_args: Any, **_kwargs: Any) -> Any:
    return NotImplemented


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
        frame = _calling_frame(sys._getframe(1))
        if frame is not None:
            place = f'  File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_name}\n'
            fx_traceback.set_stack_trace([place])
        return func(*args, **(kwargs or {}))


def _calling_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame outside torch."""
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "torch":
        frame = frame.f_back
    return frame
