"""Every subject compiles into one graph that computes what the model does, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fusionkit.capture.aot import aot_backend
from fusionkit.capture.capturing import compile_and_run
from fusionkit.subjects.build import Subject
from fusionkit.subjects.table import SUBJECTS

Load = Callable[..., Subject]

# Nodes of the graph with torch 2.13, transformers 5.24 and diffusers 0.42. Another version may differ a little;
# a tenth more or less is another graph.
NODES = {
    ("flux", "bfloat16"): 862,
    ("flux2", "bfloat16"): 871,
    ("qwen-image", "bfloat16"): 534,
    ("sd3", "bfloat16"): 509,
    ("z-image", "bfloat16"): 719,
    ("wan", "bfloat16"): 507,
    ("hunyuan-video", "bfloat16"): 1045,
    ("minimax-h3", "bfloat16"): 502,
    ("llama", "bfloat16"): 256,
    ("qwen3", "bfloat16"): 292,
    ("glm4", "bfloat16"): 332,
    ("gemma3", "bfloat16"): 404,
    ("gpt-j", "bfloat16"): 266,
    ("qwen3-moe", "bfloat16"): 346,
    ("deepseek-v3", "bfloat16"): 438,
    ("gpt-oss", "bfloat16"): 379,
    # In float32 the casts are gone; so are the islands, and the experts' product is another op.
    ("wan", "float32"): 464,
    ("gemma3", "float32"): 361,
    ("qwen3-moe", "float32"): 322,
    ("gpt-oss", "float32"): 367,
}


class Counting:
    """Counts the nodes of every graph."""

    def __init__(self) -> None:
        self.nodes: list[int] = []

    def on_window(self, window: str, key: Any, module: torch.fx.GraphModule) -> None:
        self.nodes.append(len(module.graph.nodes))

    def on_call(self, key: Any, inputs: Sequence[Any]) -> None:
        """Inputs are not looked at."""


def test_every_subject_is_captured() -> None:
    assert {name for name, _ in NODES} == set(SUBJECTS)


@pytest.mark.parametrize(("name", "dtype"), NODES, ids=str)
def test_one_graph_and_the_same_bits(name: str, dtype: str, subject: Load) -> None:
    chosen, counting = subject(name, dtype), Counting()
    eager = chosen.run()
    outcome = compile_and_run(chosen, aot_backend(counting), calls=2)
    assert (outcome.breaks, outcome.recompiles) == ((), ())
    assert len(counting.nodes) == 1
    assert counting.nodes[0] == pytest.approx(NODES[name, dtype], rel=0.1)
    assert len(eager) == len(outcome.outputs)
    for plain, compiled in zip(eager, outcome.outputs, strict=True):
        assert plain.dtype is compiled.dtype
        assert torch.equal(plain, compiled)
