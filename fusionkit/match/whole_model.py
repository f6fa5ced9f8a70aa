"""The whole compiled model against eager mode: judged in float32, reported in the working dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from fusionkit.capture.capturing import call_model, flat_tensors
from fusionkit.fusions import fused_packets
from fusionkit.match.ops import packet
from fusionkit.match.site_replay import run_graph
from fusionkit.numeric.compare import compare_outputs
from fusionkit.numeric.comparison import Comparison
from fusionkit.numeric.reference import float64_module
from fusionkit.numeric.sensitivity import NoiseFloor, Sensitivity, noise_floor, smallest_visible_scale
from fusionkit.passes.compiled import Compiled
from fusionkit.subjects.build import Subject
from fusionkit.verdict import Verdict


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """Whole-model outputs in one dtype: eager, compiled and float64, and their comparison."""

    dtype: str
    expected: tuple[torch.Tensor, ...]
    actual: tuple[torch.Tensor, ...]
    reference: tuple[torch.Tensor, ...]
    comparison: Comparison
    hit_count: int
    lacking: str = ""

    @property
    def verdict(self) -> Verdict:
        """The comparison's; INCONCLUSIVE without a hit or without a float64 reference."""
        return self.comparison.verdict if self.hit_count and not self.lacking else Verdict.INCONCLUSIVE

    @property
    def reason(self) -> str:
        """One line."""
        if not self.hit_count:
            return "no pattern hit, so no fused model was compared"
        return f"{self.lacking}; {self.comparison.reason}" if self.lacking else self.comparison.reason


def compare_model(compiled: Compiled) -> ModelComparison:
    """Compare compiled with eager outputs, both against a float64 run, on the subject's own inputs."""
    subject = compiled.subject
    with torch.no_grad():
        expected = flat_tensors(call_model(subject.model, subject))
        reference, lacking = _float64_outputs(subject)
    actual = list(compiled.outcome.outputs)
    return ModelComparison(
        dtype=subject.dtype,
        expected=tuple(expected),
        actual=tuple(actual),
        reference=tuple(reference),
        comparison=compare_outputs(expected, actual, reference=reference or None, name="model"),
        hit_count=sum(match.status == "hit" for match in compiled.matches),
        lacking=lacking,
    )


def _float64_outputs(subject: Subject) -> tuple[list[torch.Tensor], str]:
    """The model's outputs in float64; none, with the reason, if one of its ops has no float64 kernel."""
    try:
        return flat_tensors(call_model(float64_module(subject.model), subject)), ""
    except RuntimeError as error:  # makes the verdict INCONCLUSIVE
        return [], f"no float64 reference: {str(error).strip().partition(chr(10))[0]}"


def visible_scale(
    compiled: Compiled, model: ModelComparison, scales: Sequence[float] | None = None
) -> Sensitivity:
    """The smallest scale defect of the fused ops that the whole-model gate refuses in the subject's own dtype.

    It shows how little a passing whole-model comparison in a low-precision dtype proves. The compile must have kept
    its inputs and have one inference graph.
    """
    graph = compiled.after[0]
    inputs = compiled.session.inputs[graph.key.index]
    fused = fused_nodes(graph.module, compiled.session.patterns)

    def run(scale: float) -> list[torch.Tensor]:
        def scaled(node: torch.fx.Node, value: Any) -> Any:
            if node.name not in fused or scale == 1:
                return value
            return value * scale if isinstance(value, torch.Tensor) else (value[0] * scale, *value[1:])

        return flat_tensors(run_graph(graph.module, inputs, scaled))

    arguments: dict[str, Any] = {} if scales is None else {"scales": scales}
    return smallest_visible_scale(run, list(model.expected), list(model.reference), **arguments)


def repeat_noise(subject: Subject) -> NoiseFloor:
    """The difference of two eager runs of the model on the same inputs."""

    def run() -> list[torch.Tensor]:
        with torch.no_grad():
            return flat_tensors(call_model(subject.model, subject))

    return noise_floor(run, run)


def fused_nodes(module: torch.fx.GraphModule, patterns: Sequence[str]) -> frozenset[str]:
    """Names of the nodes that call a fused op of these patterns."""
    wanted = {op for name in patterns for op in fused_packets(name)}
    return frozenset(
        node.name for node in module.graph.nodes if node.op == "call_function" and packet(node) in wanted
    )
