"""Hand-written graph entries: counted, watched, and what they do to a graph checked after each rewrite."""

import pytest
import torch
from torch import nn

from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.errors import MisuseError
from fusionkit.npu.target import use_target
from fusionkit.passes.backend import FusionBackend
from fusionkit.passes.compiled import compile_subject, pattern_groups
from fusionkit.passes.graph_entries import FileGroup
from fusionkit.passes.match_pass import PatternMatchPass
from fusionkit.passes.trial import trial_groups
from fusionkit.subjects.build import Subject

use_target("cpu")

TEXT = """
import torch
from torch._inductor.pattern_matcher import Arg, CallFunction, Ignored, MULTIPLE, register_graph_pattern

aten = torch.ops.aten


def big_enough(match):
    return match.output_node().meta["val"].shape[-1] > 4


def fuse_swiglu(match, *args):
    graph, root = match.graph, match.output_node()
    silu = root.args[0]
    split = silu.args[0].args[0]
    joined = split.args[0]
{handler}


def register_my_swiglu_graph_entries(pattern_pass):
    parts = CallFunction(aten.split.Tensor, Arg(), Ignored(), Ignored(), _users=MULTIPLE)
    gate = CallFunction(__import__("operator").getitem, parts, 0)
    up = CallFunction(__import__("operator").getitem, parts, 1)
    pattern = CallFunction(aten.mul.Tensor, CallFunction(aten.silu.default, gate), up)
    register_graph_pattern(pattern, extra_check=big_enough, pass_dict=pattern_pass)(fuse_swiglu)
"""
GOOD = """with graph.inserting_before(root):
    fused = graph.call_function({op}, (joined, -1))
root.replace_all_uses_with(fused)
up = root.args[1]
for node in (root, silu, silu.args[0], up, split):
    if not node.users:
        graph.erase_node(node)"""
NPU = "torch.ops.npu.npu_swiglu.default"

FUSES = GOOD.format(op=NPU)
BAD = {
    "no replacement of uses": (
        f"with graph.inserting_before(root):\n    graph.call_function({NPU}, (joined, -1))",
        r"pattern fuse_swiglu: after its rewrite, node npu_swiglu\w* \(npu.npu_swiglu.default\) has no users",
    ),
    "inserted too late": (
        f"with graph.inserting_after(list(graph.nodes)[-1]):\n"
        f"    fused = graph.call_function({NPU}, (joined, -1))\nroot.replace_all_uses_with(fused)",
        r"node npu_swiglu\w* .* stands behind node .*, which reads it",
    ),
    "inserted too early": (
        f"with graph.inserting_before(list(graph.nodes)[0]):\n"
        f"    fused = graph.call_function({NPU}, (joined, -1))\nroot.replace_all_uses_with(fused)",
        "stands before node .*, which it reads",
    ),
    "chain left": (
        f"with graph.inserting_before(root):\n    fused = graph.call_function({NPU}, (joined, -1))\n"
        "root.replace_all_uses_with(fused)",
        r"node mul_1 \(aten.mul.Tensor\) of the replaced chain is left without users; erase it",
    ),
    "no metadata": (
        f"fused = graph.call_function({NPU}, (graph.create_node('get_attr', 'w'), -1))\n"
        "root.replace_all_uses_with(fused)",
        r'has no meta\["val"\] \(missing_meta\)',
    ),
    "raises": ("match.kwargs['x']", "handler fuse_swiglu raised KeyError: 'x' at"),
    "never ends": ("while True: pass", r"handler fuse_swiglu does not end within 0\.4 s"),
}


def write(folder, handler=FUSES, name="my_swiglu_pattern.py"):
    path = folder / name
    path.write_text(TEXT.format(handler="\n".join(f"    {line}" for line in handler.splitlines())))
    return path


class Gated(nn.Module):
    def forward(self, x, small):
        return self.half(x @ x.mT @ x), self.half(x), self.half(small)

    def half(self, x):
        gate, up = x.chunk(2, -1)
        return torch.nn.functional.silu(gate) * up


def subject():
    torch.manual_seed(0)
    return Subject(Gated(), {"x": torch.randn(3, 16), "small": torch.randn(3, 8)})


def config(path):
    return CompilationConfig(fusion_patterns=select_patterns(()), pattern_files=(str(path),))


def test_the_file_is_a_group_under_the_fusion_that_its_fused_op_belongs_to(tmp_path):
    groups = trial_groups(write(tmp_path))
    assert list(groups) == ["swiglu"]
    assert isinstance(groups["swiglu"], FileGroup)
    assert list(groups["swiglu"]) == []


def test_a_file_without_a_known_op_goes_by_its_own_name(tmp_path):
    path = write(tmp_path, GOOD.format(op="torch.ops.aten.glu.default"), "joined_gate_pattern.py")
    assert list(trial_groups(path)) == ["joined_gate"]


def test_hits_are_rewritten_and_those_that_its_own_check_refuses_are_told(tmp_path):
    compiled = compile_subject(subject(), config(write(tmp_path)))
    assert [match.status for match in compiled.matches] == ["hit", "hit", "refused"]
    assert {match.variant for match in compiled.matches} == {"fuse_swiglu"}
    assert "extra_check" in compiled.matches[2].reason
    fused = [n for n in compiled.after[0].nodes if n.target is torch.ops.npu.npu_swiglu.default]
    assert [tuple(node.meta["val"].shape) for node in fused] == [(3, 8), (3, 8)]
    expected = Gated()(*subject().kwargs.values())
    for actual, wanted in zip(compiled.outcome.outputs, expected, strict=True):
        torch.testing.assert_close(actual, wanted)


def test_counting_alone_leaves_the_graph_as_it_is(tmp_path):
    compiled = compile_subject(subject(), CompilationConfig(fusion_patterns=select_patterns(())))
    module = compiled.before[0].module
    text = str(module.graph)
    counter = PatternMatchPass(pattern_groups(config(write(tmp_path))), {}, rewrite=False)
    assert [match.status for match in counter.apply(module)] == ["hit", "hit", "refused"]
    assert str(module.graph) == text


@pytest.mark.parametrize("what", BAD)
def test_a_handler_that_breaks_the_graph_is_one_line(tmp_path, monkeypatch, what):
    monkeypatch.setattr("fusionkit.pattern_files.time_limit.TIME_LIMIT_S", 0.4)
    handler, told = BAD[what]
    with pytest.raises(MisuseError, match=told) as caught:
        compile_subject(subject(), config(write(tmp_path, handler)))
    assert "\n" not in str(caught.value)


def test_a_check_that_raises_is_one_line(tmp_path):
    path = write(tmp_path)
    path.write_text(path.read_text().replace('.meta["val"].shape[-1]', '.meta["nothing"]'))
    with pytest.raises(MisuseError, match=r"extra_check of fuse_swiglu raised KeyError: 'nothing' at .*:9"):
        compile_subject(subject(), config(path))


def test_a_function_that_registers_nothing_is_one_line(tmp_path):
    path = tmp_path / "lazy_pattern.py"
    path.write_text("def register_lazy_graph_entries(pattern_pass):\n    pass\n")
    with pytest.raises(MisuseError, match=r"register_lazy_graph_entries.* registers nothing"):
        compile_subject(subject(), config(path))


def test_entries_that_a_file_makes_once_serve_two_backends(tmp_path):
    text = TEXT.format(handler="\n".join(f"    {line}" for line in GOOD.format(op=NPU).splitlines()))
    head, _, tail = text.partition("def register_my_swiglu_graph_entries(pattern_pass):\n")
    body = "\n".join(line[4:] for line in tail.splitlines()[:4])
    path = tmp_path / "once_pattern.py"
    path.write_text(
        f"{head}\nfrom torch._inductor.pattern_matcher import GraphPatternEntry\n{body}\n"
        "ENTRY = GraphPatternEntry(pattern=pattern, extra_check=big_enough, handler=fuse_swiglu)\n"
        "def register_once_graph_entries(pattern_pass):\n    ENTRY.register(pattern_pass)\n"
    )
    groups = pattern_groups(config(path))
    model, inputs = Gated(), tuple(subject().kwargs.values())
    counters = [PatternMatchPass(groups, {}) for _ in range(2)]
    for counter in counters:
        plain = compile_subject(subject(), CompilationConfig(fusion_patterns=select_patterns(())))
        assert len([m for m in counter.apply(plain.before[0].module) if m.status == "hit"]) == 2
    backend = FusionBackend(config(path))
    torch.compile(model, backend=backend)(*inputs)
    assert backend.hits() == {"swiglu": 2}
