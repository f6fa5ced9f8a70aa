"""A capsule is judged as the subject that it was captured from."""

import json

import pytest
import torch
from made_capsules import dry_capsule
from shared_models import compiled, counts_of, shared_block
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from fusionkit.capture.capsule import capsule_dict, write_capsule
from fusionkit.capture.capturing import capture_graphs
from fusionkit.capture.counted import with_counts
from fusionkit.capture.foreign import keep_composites, npu_device
from fusionkit.capture.reading import read_capsule
from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.errors import MisuseError
from fusionkit.match.explanation.missing import explain_pattern
from fusionkit.match.hits import default_patterns, report_hits
from fusionkit.match.matching import match_subject, matching_of
from fusionkit.npu.target import use_target
from fusionkit.passes.compiled import compile_subject
from fusionkit.store import write_json
from fusionkit.subjects.build import Subject
from fusionkit.subjects.site_counts import expected_counts
from fusionkit.verdict import Verdict


@pytest.fixture(autouse=True)
def on_cpu():
    use_target("cpu")


def from_capsule(capture, model, counts, path):
    """Matching and counts of the capture, by way of a file."""
    read = read_capsule(write_capsule(with_counts(capture, model, counts), path))
    config = CompilationConfig(fusion_patterns=select_patterns(default_patterns(read.counts)))
    return match_subject(read, config), read.counts


@pytest.mark.parametrize("name", ["flux", "llama"])
def test_hits_are_equal_on_a_capsule_of_the_table(name, tmp_path):
    subject = compiled(name)
    direct = report_hits(matching_of(subject), counts_of(name))
    plain = compiled(name, plain=True)
    matching, counts = from_capsule(
        plain.capture(), subject.subject.model, counts_of(name), tmp_path / "c.json"
    )
    assert report_hits(matching, counts).to_dict() == direct.to_dict()
    assert {entry.verdict for entry in direct.patterns.values()} == {Verdict.PASS}


def test_hits_are_equal_where_a_module_stands_twice(tmp_path):
    subject = shared_block()
    counts = expected_counts(subject)
    config = CompilationConfig(fusion_patterns=select_patterns(default_patterns(counts)))
    direct = report_hits(matching_of(compile_subject(subject, config)), counts)
    matching, read = from_capsule(capture_graphs(subject), subject.model, counts, tmp_path / "c.json")
    assert report_hits(matching, read).to_dict() == direct.to_dict()
    assert len(direct.patterns["rms_norm"].hits) == 4
    assert {site["module"] for site in direct.to_dict()["patterns"]["gelu"]["sites"]} == {"layers.0.gelu"}


class OddRMSNorm(nn.Module):
    """A norm in a form that no pattern has."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(16) + 0.5)

    def forward(self, x):
        return self.gain * (x / (x * x).mean(-1, keepdim=True).sqrt())


class OddTwice(nn.Module):
    def __init__(self):
        super().__init__()
        norm = OddRMSNorm()
        self.first, self.linear, self.second = norm, nn.Linear(16, 16), norm

    def forward(self, x):
        return self.second(self.linear(self.first(x)))


def test_explanations_are_equal_and_tell_both_calls_of_one_module(tmp_path):
    torch.manual_seed(0)
    subject = Subject(OddTwice().bfloat16().eval(), (torch.randn(2, 6, 16).bfloat16(),), name="odd")
    counts = expected_counts(subject, ["rms_norm"])
    config = CompilationConfig(fusion_patterns=select_patterns(("rms_norm",)))
    direct = explain_pattern(matching_of(compile_subject(subject, config)), "rms_norm", counts)
    matching, read = from_capsule(capture_graphs(subject), subject.model, counts, tmp_path / "c.json")
    assert explain_pattern(matching, "rms_norm", read).to_dict() == direct.to_dict()
    assert [item.module for item in direct.missed] == ["first", "first"]
    assert len({item.anchor for item in direct.missed}) == 2


def test_a_count_that_is_contradicted_is_so_on_the_capsule(tmp_path):
    subject = shared_block()
    counts = expected_counts(
        Subject(subject.model, subject.inputs, expected_sites={"rms_norm": 1}, name="shared")
    )
    matching, read = from_capsule(capture_graphs(subject), subject.model, counts, tmp_path / "c.json")
    entry = report_hits(matching, read).patterns["rms_norm"]
    assert entry.verdict is Verdict.FAIL
    assert entry.reason == "rms_norm: expected_sites says 1, the eager run has 2"


def on_npu(data):
    """The same capsule, as if its graphs had been made on device npu."""
    text = json.dumps(data).replace('"device": "cpu"', '"device": "npu:0"')
    return json.loads(text) | {"target": "npu-dry"}


def another_graph():
    """Nodes of a graph on npu whose device leaves ops whole that these models' graphs do not have."""
    aten = torch.ops.aten
    graph = torch.fx.Graph()
    for op in (aten.reshape.default, aten.unflatten.int, aten.flatten.using_ints, aten.matmul.default):
        with FakeTensorMode():
            graph.call_function(op).meta["val"] = torch.empty(2, device=npu_device("npu"))
    return graph.nodes


@pytest.mark.parametrize("name", ["flux", "llama"])
def test_patterns_match_on_device_npu_as_on_cpu(name, tmp_path):
    data = on_npu(capsule_dict(compiled(name, plain=True).capture()))
    capture = read_capsule(write_json(tmp_path / "npu.json", data))
    keep_composites(another_graph())
    matching = match_subject(capture, compiled(name).config)
    assert matching.device != "cpu"
    wanted = [
        match for match in compiled(name).matches if match.pattern != "swiglu"
    ]  # the npu has matmul, not mm
    assert [match for match in matching.matches if match.pattern != "swiglu"] == wanted
    assert wanted


def test_a_pattern_over_linears_matches_the_matmuls_of_an_npu(tmp_path):
    capture = read_capsule(write_json(tmp_path / "dry.json", dry_capsule()))
    config = CompilationConfig(fusion_patterns=select_patterns(("swiglu",)))
    entry = report_hits(match_subject(capture, config), capture.counts).patterns["swiglu"]
    assert entry.verdict is Verdict.PASS, entry.reason
    assert entry.hits[0].nodes == ("t", "matmul", "silu", "t_1", "matmul_1", "mul_2")


def test_the_ops_documented_limits_hold_on_device_npu(tmp_path):
    """npu_rms_norm needs a gain with the shape of input's last dimensions, wherever the tensors are."""
    data = dry_capsule()
    gain = next(node for node in data["graphs"][0]["nodes"] if node["name"] == "g2")
    gain["meta"].update(shape=[1, 16], stride=[16, 1])
    capture = read_capsule(write_json(tmp_path / "dry.json", data))
    config = CompilationConfig(fusion_patterns=select_patterns(("rms_norm",)))
    matches = match_subject(capture, config).matches
    assert matches
    assert "hit" not in {match.status for match in matches}
    assert any("gamma must have the shape of input's last dimensions" in str(m.reason) for m in matches)


def test_a_window_that_was_not_captured_is_one_line(tmp_path):
    capture = read_capsule(write_json(tmp_path / "dry.json", dry_capsule()))
    with pytest.raises(MisuseError, match=r"window after-freezing \(there is: before-freezing\)"):
        match_subject(capture, CompilationConfig(window="after-freezing"))


def test_a_miss_in_the_second_graph_is_explained_there():
    """A graph break splits the model; the counted norm that misses stands behind it."""

    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.RMSNorm(16, eps=1e-6)
            self.odd = OddRMSNorm()

        def forward(self, x):
            x = self.norm(x)
            torch._dynamo.graph_break()
            return self.odd(x)

    torch.manual_seed(0)
    subject = Subject(Broken().bfloat16().eval(), (torch.randn(2, 6, 16).bfloat16(),), name="broken")
    config = CompilationConfig(fusion_patterns=select_patterns(("rms_norm",)))
    matching = matching_of(compile_subject(subject, config))
    report = explain_pattern(matching, "rms_norm", expected_counts(subject, ["rms_norm"]))
    assert len(matching.graphs) == 2
    assert [match.graph_index for match in report.hits.hits] == [0]
    (missed,) = report.missed
    assert missed.module == "odd"
    assert missed.anchor in {node.name for node in matching.graphs[1].nodes}
    assert missed.causes[0].type != "root_not_indexed"
