"""Pattern files written from chosen sites: they load, hit every site of the form, and take an op only if equal."""

import json

import pytest
import torch
from shared_models import compiled
from torch import nn

from fusionkit.capture.capsule import write_capsule
from fusionkit.capture.capturing import capture_graphs
from fusionkit.capture.sources import module_path
from fusionkit.cli import main
from fusionkit.errors import MisuseError
from fusionkit.match.matching import Matching, match_subject
from fusionkit.match.repairing import synthesis
from fusionkit.match.repairing.synthesis import synthesize
from fusionkit.match.repairing.synthesis_ops import FORMS
from fusionkit.npu.schemas import KIT_SCHEMAS, SCHEMAS
from fusionkit.patterns import PatternBase
from fusionkit.subjects.build import Subject


@pytest.fixture(scope="module")
def llama():
    return compiled("llama", plain=True).capture()


def nodes_below(capture, module):
    graph = capture.graphs[0]
    return [n.name for n in graph.nodes if n.op == "call_function" and module_path(n) == module]


class Norm(nn.Module):
    """A norm over its input, by another kind of mean."""

    def __init__(self, kind, eps=1e-6):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(16) + 0.5)
        self.kind = kind
        self.eps = eps

    def forward(self, x):
        h = x.float()
        mean = h.pow(2).mean(-1, keepdim=True) if self.kind == "square" else h.abs().mean(-1, keepdim=True)
        return self.gain * (h * torch.rsqrt(mean + self.eps)).to(x.dtype)


def capture_of(*norms):
    model = nn.Sequential(*norms).bfloat16().eval()
    subject = Subject(model=model, inputs=(torch.randn(2, 6, 16).bfloat16(),), name="made", dtype="bfloat16")
    return capture_graphs(subject)


class TestSites:
    def test_one_chosen_norm_gives_a_pattern_for_all(self, llama):
        report = synthesize(llama, "my_norm", nodes=nodes_below(llama, "model.layers.0.input_layernorm"))
        assert (report.sites, report.hits) == (5, 5)
        assert report.taken[0][0] == "MyNormPattern"
        assert report.taken[0][1].startswith("npu_rms_norm, equal on target cpu")
        assert "MyNormPatternGroup = [" in report.text
        assert "TODO" not in report.text

    def test_lines_of_the_model_choose_as_well(self, llama):
        from fusionkit.capture.sources import source_line

        names = set(nodes_below(llama, "model.layers.0.input_layernorm"))
        places = [source_line(node) for node in llama.graphs[0].nodes if node.name in names]
        numbers = [int(place.rpartition(":")[2]) for place in places]
        file = places[0].rpartition(":")[0]
        report = synthesize(llama, "my_norm", lines=f"{file}:{min(numbers)}-{max(numbers)}")
        assert (report.sites, report.hits) == (5, 5)

    def test_an_eps_that_differs_becomes_a_scalar(self):
        capture = capture_of(Norm("square", 1e-6), Norm("square", 1e-3))
        report = synthesize(capture, "my_norm", nodes=nodes_below(capture, "0"))
        assert (report.sites, report.hits) == (2, 2)
        assert "def replacement(x, weight, eps=1e-06):" in report.text
        assert "npu_rms_norm(x, weight, eps)[0]" in report.text


class TestChosenSites:
    Q_ROPE = ("mul_5", "slice_4", "slice_5", "neg", "cat_2", "mul_6", "add_4")
    K_ROPE = ("mul_7", "slice_6", "slice_7", "neg_1", "cat_3", "mul_8", "add_5")

    def test_the_chosen_node_is_the_one_that_is_described(self, llama):
        """The norm's gain alone: the product of any two tensors is of its form, but the file is about the norm."""
        node = nodes_below(llama, "model.layers.0.input_layernorm")[-1]
        report = synthesize(llama, "gain", nodes=[node])
        assert "1 nodes of model.layers.0.input_layernorm" in report.text
        inputs = report.text.partition("return [")[2].partition("]\n\n")[0]
        assert [line.strip() for line in inputs.splitlines() if "empty" in line] == [
            'torch.empty([64], dtype=dtype, device="meta"),',
            'torch.empty([1, 16, 64], dtype=dtype, device="meta"),',
        ]
        assert report.hits == report.sites == 21
        assert report.besides == 2

    def test_two_sites_of_one_form_are_two_sites_of_one_class(self, llama):
        report = synthesize(llama, "my_rope", nodes=[*self.Q_ROPE, *self.K_ROPE])
        assert (report.sites, report.hits, report.besides) == (4, 4, 0)
        assert [cls for cls, _ in report.taken] == ["MyRopePattern"]
        assert "def pattern(x, other, other_2):" in report.text

    def test_sites_of_two_forms_are_two_classes(self, llama):
        report = synthesize(llama, "both", nodes=["neg", "add_5", "mul_7", "mul_8"])
        assert [cls for cls, _ in report.taken] == ["BothPattern", "Both2Pattern"]

    def test_nodes_without_any_input_are_refused(self, llama):
        with pytest.raises(MisuseError, match="'arange': the chosen nodes take no tensor"):
            synthesize(llama, "x", nodes=["arange"])

    def test_a_file_that_misses_a_chosen_site_is_not_written(self, llama, tmp_path, monkeypatch, capsys):
        unusable = {PatternBase: MisuseError("pattern APattern: too odd")}
        missing = Matching(llama, "before-freezing", {}, (), unusable=unusable)
        monkeypatch.setattr(synthesis, "match_groups", lambda *_, **__: missing)
        out = tmp_path / "a_pattern.py"
        report = synthesize(llama, "a", nodes=["mul_4"])
        assert report.reason.endswith("0 of 1 chosen sites and misses 'mul_4': pattern APattern: too odd")
        with pytest.raises(MisuseError, match="not written, it takes 0 of 1"):
            report.write(out)
        capsule = write_capsule(llama, tmp_path / "llama.json")
        assert main(["synthesize", str(capsule), "--nodes", "mul_4", "--out", str(out)]) == 1
        assert "no file is written: it takes 0 of 1 chosen sites" in capsys.readouterr().out
        assert not out.exists()


class TestReplacement:
    def test_is_left_to_the_user_where_no_op_is_equal(self):
        """A mean of absolute values is no RMS norm, however alike the graph looks."""
        capture = capture_of(Norm("absolute"))
        report = synthesize(capture, "my_norm", nodes=nodes_below(capture, "0"))
        assert report.taken == (("MyNormPattern", None),)
        assert (report.sites, report.hits) == (1, 1)
        assert "# TODO: put the fused op here" in report.text

    @pytest.mark.parametrize(
        ("subject", "pattern", "op"),
        [
            ("flux", "rope", 'npu_rotary_mul(x.float(), other, other_2, "interleave")'),
            ("flux", "gelu", 'npu_gelu(x, approximate="tanh")'),
            ("flux", "ada_layer_norm", "layer_norm_scale_shift(x, other.unsqueeze(1), other_2.unsqueeze(1)"),
            ("llama", "rope", 'npu_rotary_mul(x, other, other_2, "half")'),
        ],
    )
    def test_is_the_op_that_the_kits_own_pattern_has(self, subject, pattern, op):
        from fusionkit.config import CompilationConfig, select_patterns

        capture = compiled(subject, plain=True).capture()
        config = CompilationConfig(fusion_patterns=select_patterns((pattern,)))
        match = match_subject(capture, config).of(pattern)[0]
        report = synthesize(capture, "own", nodes=match.nodes)
        assert report.hits == report.sites > 0
        assert op in report.text

    def test_every_op_of_the_table_exists(self):
        assert {form.op for form in FORMS} <= {*SCHEMAS, *KIT_SCHEMAS}


class TestMisuse:
    def test_sites_are_chosen_one_way(self, llama):
        for chosen in ({}, {"nodes": ["add"], "lines": "a.py:1"}):
            with pytest.raises(MisuseError, match="either --nodes a,b,c or --lines"):
                synthesize(llama, "my_norm", **chosen)

    def test_the_command_writes_once(self, llama, tmp_path, capsys):
        capsule = write_capsule(llama, tmp_path / "llama.json")
        out = tmp_path / "my_norm_pattern.py"
        nodes = ",".join(nodes_below(llama, "model.norm"))
        words = ["synthesize", str(capsule), "--nodes", nodes, "--out", str(out), "--json"]
        assert main(words) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["name"], told["hits"], told["sites"]) == ("my_norm", 5, 5)
        assert out.read_text() == told["text"]
        assert main(words) == 2
        assert "never overwritten" in capsys.readouterr().err

    def test_an_unknown_node_is_one_line(self, llama, tmp_path, capsys):
        capsule = write_capsule(llama, tmp_path / "llama.json")
        words = ["synthesize", str(capsule), "--nodes", "nonesuch", "--out", str(tmp_path / "a_pattern.py")]
        assert main(words) == 2
        assert "'nonesuch' is not in graph 0" in capsys.readouterr().err
