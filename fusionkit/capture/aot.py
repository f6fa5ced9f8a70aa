"""An AOT autograd backend that hands the graph of each window to a listener."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._guards import CompileContext, active_fake_mode
from torch._inductor.freezing import freeze
from torch._inductor.fx_passes.post_grad import remove_noop_ops

from fusionkit.capture.graphs import GraphKey

CompiledFunction = Callable[..., Any]
CompilerFunction = Callable[[torch.fx.GraphModule, list[Any]], CompiledFunction]


class GraphListener:
    """Callbacks of one compile; each does nothing unless a subclass overrides it."""

    def on_window(self, window: str, key: GraphKey, module: torch.fx.GraphModule) -> None:
        """`module` has reached `window`; it may be rewritten in place."""

    def on_call(self, key: GraphKey, inputs: Sequence[Any]) -> None:
        """The compiled graph is about to run on real `inputs` (in placeholder order of the first window)."""


def decomposition_table(name: str) -> dict[Any, Callable[..., Any]]:
    """The table for `name`: "none" is empty, "inductor" is Inductor's own default table."""
    if name == "none":
        return {}
    from torch._inductor.decomposition import select_decomp_table

    return dict(select_decomp_table())


def aot_backend(
    listener: GraphListener, *, decompositions: str = "none", freezing: bool = False
) -> CompilerFunction:
    """A torch.compile backend that traces with AOT autograd and runs the graphs with eager kernels.

    Each graph passes the window "before-freezing"; with `freezing`, inference graphs are frozen and pass the
    window "after-freezing". After the last window no-op nodes (the clone of a dropout in eval mode) are removed,
    as Inductor does before it generates code. Each backend instance numbers its own graphs.
    """
    count = 0

    def backend(dynamo_module: torch.fx.GraphModule, example_inputs: list[Any]) -> CompiledFunction:
        compile_id = str(CompileContext.current_compile_id() or "")

        def compiler(kind: str) -> CompilerFunction:
            def compile_graph(module: torch.fx.GraphModule, inputs: list[Any]) -> CompiledFunction:
                nonlocal count
                key = GraphKey(count, kind, compile_id)
                count += 1
                listener.on_window("before-freezing", key, module)
                kept: list[int] | None = None
                if freezing and kind == "inference":
                    module, kept = freeze(dynamo_module, module, inputs)
                    listener.on_window("after-freezing", key, module)
                if kind == "inference":
                    remove_noop_ops(module.graph)
                module.graph.lint()
                module.recompile()
                return _runner(listener, key, module, kept)

            return compile_graph

        return aot_autograd(
            fw_compiler=compiler("forward"),
            bw_compiler=compiler("backward"),
            inference_compiler=compiler("inference"),
            decompositions=decomposition_table(decompositions),
        )(dynamo_module, example_inputs)

    return backend


def _runner(
    listener: GraphListener, key: GraphKey, module: torch.fx.GraphModule, kept: list[int] | None
) -> CompiledFunction:
    """The callable for AOT autograd: it calls the listener, then runs the graph node by node.

    Under a fake mode an inference graph with static output shapes is not run: empty tensors with the outputs'
    metadata are returned.
    """
    outputs = _output_values(module) if key.kind == "inference" else None

    def run(*args: Any) -> Any:
        listener.on_call(key, args)
        if outputs is not None and active_fake_mode() is not None:
            return [
                torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
                for value in outputs
            ]
        return module.forward(*(args if kept is None else [args[index] for index in kept]))

    return make_boxed_func(run)  # type: ignore[no-any-return]


def _output_values(module: torch.fx.GraphModule) -> list[torch.Tensor] | None:
    """Fake tensors of the outputs; None unless each is a static-shape tensor computed by a node of the graph."""
    values = []
    for node in module.graph.output_node().args[0]:  # type: ignore[union-attr]
        value = (
            node.meta.get("val") if isinstance(node, torch.fx.Node) and node.op == "call_function" else None
        )
        if not isinstance(value, torch.Tensor) or not all(isinstance(size, int) for size in value.shape):
            return None
        values.append(value)
    return values
