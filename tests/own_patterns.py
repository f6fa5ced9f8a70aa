"""Small models and patterns of a user's own: a pattern class from two functions, and its explanation on a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from fusionkit.capture.capturing import capture_graphs
from fusionkit.capture.graphs import Capture
from fusionkit.match.explanation.missing import ExplainReport, explain_pattern
from fusionkit.match.matching import match_groups
from fusionkit.npu.target import use_target
from fusionkit.passes.registering import PatternClass
from fusionkit.patterns import PatternBase
from fusionkit.subjects.build import Subject
from fusionkit.subjects.site_counts import ExpectedCount


def model_of(function: Callable[..., Any], **parameters: torch.Tensor) -> nn.Module:
    """A module `own` whose forward is `function(module, *inputs)`, within a model; each has code of its own."""

    def forward(self: nn.Module, *inputs: torch.Tensor) -> Any:
        return function(self, *inputs)

    own = type("Own", (nn.Module,), {"forward": forward})()
    for name, value in parameters.items():
        own.register_parameter(name, nn.Parameter(value))
    outer = type("Outer", (nn.Module,), {"forward": lambda self, *inputs: self.own(*inputs)})()
    outer.own = own
    return outer.eval()


def capture_of(model: nn.Module, *inputs: torch.Tensor) -> Capture:
    """The graphs of a model on target cpu."""
    use_target("cpu")
    return capture_graphs(Subject(model=model, inputs=inputs, name="own"))


def pattern_of(
    search: Callable[..., Any],
    replacement: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    name: str = "OwnPattern",
    **members: Any,
) -> PatternClass:
    """A pattern class; `inputs`: tensors of the example shapes and dtypes."""
    examples = [torch.empty_like(tensor, device="meta") for tensor in inputs]
    methods = {
        "name": lambda: name,
        "inputs": lambda: examples,
        "pattern": search,
        "replacement": replacement,
        **members,
    }
    return type(name, (PatternBase,), {key: staticmethod(value) for key, value in methods.items()})


def explained(
    capture: Capture, *patterns: PatternClass, sites: int | None = None, **groups: Sequence[PatternClass]
) -> ExplainReport:
    """The explanation of the group `trial` of `patterns`, registered behind `groups`; `sites`: the number counted."""
    matching = match_groups(capture, {**groups, "trial": list(patterns)}, "before-freezing")
    counts = {} if sites is None else {"trial": ExpectedCount("trial", None, sites, False)}
    return explain_pattern(matching, "trial", counts)


def causes(report: ExplainReport) -> list[tuple[str, str]]:
    """Type and graph node of each cause of the first miss."""
    return [(cause.type, cause.graph_node) for cause in report.missed[0].causes]
