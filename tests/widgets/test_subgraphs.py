"""The site's subgraph from a real explanation: inputs, calls, output, what differs, users from outside."""

from __future__ import annotations

import pytest
from missed_sites import BARE
from shared_models import small_subject
from trial_files import GRAPH_EPS, write_trial

from fusionkit.capture.capturing import capture_graphs
from fusionkit.match.explanation.missing import explain_capture
from fusionkit.npu.target import use_target
from fusionkit.widgets.drawing import graph_svg, site_nodes


@pytest.fixture(scope="module")
def capture():
    use_target("cpu")
    return capture_graphs(small_subject())


def nearest(capture, path):
    """The explanation of torch.nn.RMSNorm's place."""
    (report,) = explain_capture(capture, path)
    return next(site for site in report.missed if site.module == "norm")


def test_inputs_calls_and_output_with_the_difference_marked(capture, tmp_path):
    nodes = {node.name: node for node in site_nodes(nearest(capture, write_trial(tmp_path, eps="1e-3")))}
    assert sorted(note for node in nodes.values() for note in node.notes) == [
        "input weight_1",
        "input x_1",
        "output",
        "\N{NOT EQUAL TO} 1 scalar_literal",
    ]
    (differing,) = [node for node in nodes.values() if node.differs]
    assert differing.call == "add.Scalar"
    calls = [node.call for node in nodes.values() if node.role == "call"]
    assert calls[0] == "_to_copy(float32)"
    assert "rsqrt" in calls
    seen: set[str] = set()
    for node in nodes.values():
        assert node.role == "input" or set(node.operands) <= seen
        seen.add(node.name)
    assert "add.Scalar" in graph_svg(list(nodes.values()), "a site")


SCALE = """
import torch
from fusionkit.patterns import PatternBase


class ScalePattern(PatternBase):
    name = staticmethod(lambda: "Scale")
    inputs = staticmethod(lambda: [torch.empty(2, 6, 16, dtype=torch.bfloat16, device="meta")])
    replacement = staticmethod(lambda x: x.float())

    @staticmethod
    def pattern(x):
        h = x.to(torch.float32)
        return torch.rsqrt(torch.ops.aten.add.Scalar(torch.ops.aten.mean.dim(h.pow(2), [2], True), EPS))


ScalePatternGroup = [ScalePattern]
""".replace("EPS", GRAPH_EPS)


def test_a_user_from_outside_is_drawn(capture, tmp_path):
    """The norm uses its float32 input twice, the pattern once."""
    path = tmp_path / "scale_pattern.py"
    path.write_text(SCALE)
    site = nearest(capture, path)
    assert [cause.type for cause in site.causes] == ["extra_user"]
    nodes = site_nodes(site)
    (outside,) = [node for node in nodes if node.role == "outside"]
    (differing,) = [node for node in nodes if node.differs]
    assert outside.call == "mul.Tensor"
    assert outside.notes == ("user from outside",)
    assert differing.name in outside.operands
    assert differing.call == "_to_copy(float32)"


def test_a_site_without_an_alignment_has_nothing_to_draw():
    assert site_nodes(BARE) == []
