"""The whole compiled model against eager mode: judged in float32, reported in the working dtype.

In float32 a pattern counts only where it hits itself. One whose variants are all of lower precision is compiled once
more with twins of them: the same functions, traced on float32 inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from fusionkit.passes.compiled import Compiled, compile_subject
from fusionkit.passes.graph_entries import FileGroup
from fusionkit.passes.registering import PatternClass
from fusionkit.passes.site_match import count_hits
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
    hits: Mapping[str, int]
    lacking: str = ""

    @property
    def verdict(self) -> Verdict:
        """The comparison's; INCONCLUSIVE without a hit or without a float64 reference."""
        compared = any(self.hits.values()) and not self.lacking
        return self.comparison.verdict if compared else Verdict.INCONCLUSIVE

    @property
    def reason(self) -> str:
        """One line: what is lacking, the comparison, and the hits of each pattern."""
        if not any(self.hits.values()):
            return self.lacking or "no pattern hit, so no fused model was compared"
        counts = ", ".join(f"{name} {count}" for name, count in self.hits.items() if count)
        parts = (self.lacking, self.comparison.reason, f"hits: {counts}")
        return "; ".join(part for part in parts if part)


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
        hits=count_hits(compiled.groups, compiled.matches),
        lacking=lacking,
    )


def compare_in_float32(compiled: Compiled, subject: Subject) -> ModelComparison:
    """`compare_model` of the float32 `subject`, for the patterns that hit in `compiled`, which has the working dtype.

    INCONCLUSIVE where one of them hits nowhere in float32, with a twin of its variants either.
    """
    wanted = {name: count for name, count in count_hits(compiled.groups, compiled.matches).items() if count}
    twin = compile_subject(subject, compiled.config)
    if missing := _without_hit(wanted, twin):
        groups = {**twin.groups, **{name: _with_twins(twin.groups[name]) for name in missing}}
        twin = compile_subject(subject, compiled.config, groups=groups)
    model = compare_model(twin)
    lacking = [
        f"{name}: {wanted[name]} hits in {compiled.subject.dtype} and none in float32, so that it was not compared"
        for name in _without_hit(wanted, twin)
    ]
    return replace(model, lacking="; ".join([model.lacking, *lacking] if model.lacking else lacking))


def _without_hit(wanted: Iterable[str], twin: Compiled) -> list[str]:
    hits = count_hits(twin.groups, twin.matches)
    return [name for name in wanted if not hits[name]]


def _with_twins(group: Sequence[PatternClass]) -> Sequence[PatternClass]:
    """The group, followed by each of its classes with example inputs in float32."""
    twins = [_float32_twin(pattern) for pattern in group]
    if isinstance(group, FileGroup):
        return FileGroup(group.name, [*group, *twins], group.entries)
    return [*group, *twins]


def _float32_twin(pattern: PatternClass) -> PatternClass:
    def inputs() -> list[torch.Tensor]:
        return [x.float() if x.is_floating_point() else x for x in pattern.inputs()]

    members = {"name": staticmethod(lambda: f"{pattern.name()}_in_float32"), "inputs": staticmethod(inputs)}
    return type(f"{pattern.__name__}InFloat32", (pattern,), members)


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
