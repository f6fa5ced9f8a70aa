"""A backend with its own cache, like MindIE-SD's: its pattern pass never gets a graph that was served from the cache.

Empty the cache, or compile once without it. With Inductor: TORCHINDUCTOR_FORCE_DISABLE_CACHES=1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from fusionkit import load_subject, use_target
from fusionkit.passes.probe import probe


class CachingBackend:
    """Compiles a graph once and keeps what came of it, by the graph's text."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __call__(self, module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        """What torch.compile calls."""
        return aot_autograd(fw_compiler=self._compile)(module, inputs)

    def _compile(self, graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        key = str(graph.graph)
        if key not in self._made:
            self.apply_pattern_match_passes(graph, inputs)
            self._made[key] = make_boxed_func(graph.forward)
        return self._made[key]

    def apply_pattern_match_passes(self, graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> None:
        """Where MindIE-SD's patterns would be applied."""


use_target("cpu")
subject, backend = load_subject("small_models:norm"), CachingBackend()
for _ in range(2):
    report = probe(subject, "rms_norm", backend=backend)
    print(report.verdict, report.reason)
