"""Freezing: parameters become constants of the graph, and what depends on them alone is folded."""

from __future__ import annotations

from typing import Any

import torch.fx
from torch._inductor.freezing import freeze


def freeze_graph(
    dynamo_module: torch.fx.GraphModule, module: torch.fx.GraphModule, example_inputs: list[Any]
) -> tuple[torch.fx.GraphModule, list[int]]:
    """Freeze an inference graph with Inductor's own freezing.

    Returns the frozen graph and the indices of the inputs that it still takes.
    """
    frozen, kept = freeze(dynamo_module, module, example_inputs)
    return frozen, list(kept)
