"""A hit of a hand-written entry is replayed like any other: the graph's nodes against what the handler made."""

import pytest
import torch
from torch import nn

from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.match.site_replay import replay_hits
from fusionkit.npu.target import use_target
from fusionkit.passes.compiled import compile_subject
from fusionkit.subjects.build import Subject
from fusionkit.verdict import Verdict

use_target("cpu")

TEXT = """
import operator
import torch
from torch._inductor.pattern_matcher import Arg, CallFunction, Ignored, MULTIPLE, register_graph_pattern

aten = torch.ops.aten


def fuse_swiglu(match, *args):
    graph, root = match.graph, match.output_node()
    silu, up = root.args
    split = up.args[0]
    with graph.inserting_before(root):
        fused = graph.call_function(torch.ops.npu.npu_swiglu.default, (split.args[0], -1))
        {more}
    root.replace_all_uses_with(fused)
    for node in (root, silu, silu.args[0], up, split):
        if not node.users:
            graph.erase_node(node)


def register_swiglu_graph_entries(pattern_pass):
    parts = CallFunction(aten.split.Tensor, Arg(), Ignored(), Ignored(), _users=MULTIPLE)
    gate, up = (CallFunction(operator.getitem, parts, index) for index in (0, 1))
    pattern = CallFunction(aten.mul.Tensor, CallFunction(aten.silu.default, gate), up)
    register_graph_pattern(pattern, pass_dict=pattern_pass)(fuse_swiglu)
"""


class TwiceGated(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(8, 16), nn.Linear(8, 8)

    def forward(self, x):
        return self.gated(self.narrow(self.gated(self.wide(x))))

    def gated(self, x):
        gate, up = x.chunk(2, -1)
        return nn.functional.silu(gate) * up


def replayed(folder, more):
    path = folder / "swiglu_pattern.py"
    path.write_text(TEXT.format(more=more))
    torch.manual_seed(0)
    subject = Subject(TwiceGated(), {"x": torch.randn(5, 8)})
    config = CompilationConfig(fusion_patterns=select_patterns(()), pattern_files=(str(path),))
    return replay_hits(compile_subject(subject, config, keep_inputs=True))


def test_each_site_is_replayed_at_its_own_shapes(tmp_path):
    report = replayed(tmp_path, "pass")
    assert report.verdict is Verdict.PASS
    assert len(report.sites) == 2
    assert {regime.regime for _, site in report.sites for regime in site.regimes} > {"own"}


@pytest.mark.parametrize(
    "more",
    [
        "fused = graph.call_function(aten.mul.Tensor, (fused, 1.01))",
        "fused = graph.call_function(aten.neg.default, (fused,))",
        "fused = graph.call_function(aten.mul.Tensor, (fused, fused))",
    ],
)
def test_a_handler_that_computes_something_else_fails(tmp_path, more):
    report = replayed(tmp_path, more)
    assert report.verdict is Verdict.FAIL
    assert all(site.verdict is Verdict.FAIL for _, site in report.sites)
