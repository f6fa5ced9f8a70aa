"""Every subject compiles into one graph that computes what the model does, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fusionkit.capture.aot import aot_backend
from fusionkit.capture.compiling import compile_and_run
from fusionkit.subjects.build import Subject
from fusionkit.subjects.table import SUBJECTS

Load = Callable[..., Subject]

# Nodes of the graph with torch 2.13, transformers 5.24 and diffusers 0.42, in bfloat16 and in float32. Another
# version may differ a little; a tenth more or less is another graph.
NODES = {
    "flux": (862, 809),
    "flux2": (871, 819),
    "qwen-image": (534, 498),
    "sd3": (509, 486),
    "z-image": (719, 651),
    "wan": (507, 464),
    "hunyuan-video": (1045, 990),
    "minimax-h3": (502, 457),
    "llama": (256, 244),
    "qwen3": (292, 272),
    "glm4": (332, 312),
    "gemma3": (404, 361),
    "gpt-j": (266, 265),
    "qwen3-moe": (346, 322),
    "deepseek-v3": (438, 408),
    "gpt-oss": (379, 367),
}


class Counting:
    """Counts the nodes of every graph."""

    def __init__(self) -> None:
        self.nodes: list[int] = []

    def on_window(self, window: str, key: Any, module: torch.fx.GraphModule) -> None:
        self.nodes.append(len(module.graph.nodes))

    def on_call(self, key: Any, inputs: Sequence[Any]) -> None:
        """Inputs are not looked at."""


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", SUBJECTS)
def test_one_graph_and_the_same_bits(name: str, dtype: str, subject: Load) -> None:
    chosen, counting = subject(name, dtype), Counting()
    eager = chosen.run()
    outcome = compile_and_run(chosen, aot_backend(counting), calls=2)
    assert (outcome.breaks, outcome.recompiles) == ((), ())
    assert len(counting.nodes) == 1
    assert counting.nodes[0] == pytest.approx(NODES[name][dtype == "float32"], rel=0.1)
    assert len(eager) == len(outcome.outputs)
    for plain, compiled in zip(eager, outcome.outputs, strict=True):
        assert plain.dtype is compiled.dtype
        assert torch.equal(plain, compiled)
