"""Repairs: a file whose variants are written from the graph, offered only where it hits more and is right."""

import json
import textwrap

import pytest
import torch
from shared_models import compiled
from trial_files import write_trial

from fusionkit.capture.capsule import write_capsule
from fusionkit.cli import main
from fusionkit.errors import MisuseError
from fusionkit.match.repairing.repair import repair
from fusionkit.passes.trial import trial_groups
from fusionkit.verdict import Verdict

_FILE = """
import torch

from fusionkit.patterns import PatternBase

HELD = torch.ones(16)


class Pattern(PatternBase):
    @staticmethod
    def name():
        return "Trial"

    @staticmethod
    def inputs():
        return [torch.empty(2, 24, 4, 16, dtype=torch.bfloat16, device="meta"), {more}]

    @staticmethod
    def pattern({arguments}):
        h = {cast}
        variance = torch.ops.aten.mean.dim(h.pow(2), {dim}, True)
        h = {product}
        return {end}

    @staticmethod
    def replacement({arguments}):
        return torch.ops.npu.npu_rms_norm(x, {weight}, {eps})[0]


OddRmsNormPatternGroup = [Pattern]
"""
_RIGHT = {
    "arguments": "x, weight",
    "more": 'torch.empty(16, dtype=torch.bfloat16, device="meta")',
    "cast": "x.to(torch.float32)",
    "dim": "[x.dim() - 1]",
    "product": "h * torch.rsqrt(torch.ops.aten.add.Scalar(variance, 9.999999974752427e-07))",
    "end": "(h * weight).to(x.dtype)",
    "weight": "weight",
    "eps": "1e-6",
}
MISSES = {
    "scalar_literal": {"product": "h * torch.rsqrt(torch.ops.aten.add.Scalar(variance, 1e-6))"},
    "wrong in both": {"product": "h * torch.rsqrt(torch.ops.aten.add.Scalar(variance, 1e-3))", "eps": "1e-3"},
    "dim_literal": {"dim": "[-1]"},
    "argument_order": {
        "product": "torch.rsqrt(torch.ops.aten.add.Scalar(variance, 9.999999974752427e-07)) * h"
    },
    "overload": {"product": "h * torch.rsqrt(variance + 9.999999974752427e-07)"},
    "dtype_path": {"end": "h.to(x.dtype) * weight"},
    "missing_node": {"end": "torch.relu((h * weight).to(x.dtype))"},
    "decomposition": {"cast": "torch.ops.prims.convert_element_type.default(x, torch.float32)"},
    "parameter_source": {
        "arguments": "x",
        "more": "",
        "end": "(h * HELD.to(h.device)).to(x.dtype)",
        "weight": "HELD",
    },
    "unused_argument": {
        "arguments": "x, weight, spare",
        "more": _RIGHT["more"] + ', torch.empty(4, device="meta")',
    },
}


def odd_file(folder, **changes):
    path = folder / "odd_rms_norm_pattern.py"
    path.write_text(_FILE.format(**(_RIGHT | changes)))
    return path


@pytest.fixture(scope="module")
def flux():
    return compiled("flux", plain=True).capture()


class TestOffered:
    @pytest.mark.parametrize("kind", list(MISSES))
    def test_every_site_is_hit_and_equal(self, flux, tmp_path, kind):
        path = odd_file(tmp_path, **MISSES[kind])
        before = path.read_text()
        report = repair(flux, path)
        assert (report.before, report.after, report.offered) == (0, 12, True), report.reason
        assert {site.verdict for site in report.sites} == {Verdict.PASS}
        assert path.read_text() == before
        assert report.text.startswith(before.rstrip())

    def test_the_new_file_is_a_pattern_file(self, flux, tmp_path):
        report = repair(flux, odd_file(tmp_path, dim="[-1]"))
        new = report.write(tmp_path / "fixed_pattern.py")
        (pattern,) = trial_groups(new)["rms_norm"]
        assert pattern.name() == "Trial_repaired_1"
        assert "    # dim_literal: [-1] -> [3] (node mean)" in report.text
        with pytest.raises(MisuseError, match="never overwritten"):
            report.write(new)

    def test_the_variants_that_hit_are_kept(self, flux, tmp_path):
        path = odd_file(tmp_path)
        text = path.read_text().replace(
            "[Pattern]", "[Pattern, type('B', (Pattern,), {'name': staticmethod(lambda: 'B')})]"
        )
        path.write_text(text + "\n\nOddGeluPatternGroup = []\n")
        report = repair(flux, path)
        assert (report.before, report.after, report.offered) == (12, 12, False)
        assert report.reason.startswith("12 sites hit already")

    def test_a_held_weight_becomes_an_argument_of_both_functions(self, flux, tmp_path):
        report = repair(flux, odd_file(tmp_path, **MISSES["parameter_source"]))
        assert "def pattern(x, weight):" in report.text
        assert "def replacement(x, weight):" in report.text

    def test_a_kit_pattern_by_name(self):
        """A kit name is repaired from the kit's own file; where nothing is missed there is nothing to offer."""
        report = repair(compiled("llama", plain=True).capture(), "rms_norm")
        assert (report.before, report.offered) == (5, False)


class TestStillMissed:
    """One site of two can be mended; the other has an inner node that is used elsewhere too."""

    class Model(torch.nn.Module):
        def norm(self, x, weight):
            h = x.to(torch.float32)
            scale = torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
            return (h * scale * weight).to(x.dtype), scale

        def forward(self, x, y, weight):
            return self.norm(x, weight)[0], *self.norm(y, weight)

    def test_each_with_its_causes_in_text_and_json(self, tmp_path, capsys):
        from fusionkit.capture.capturing import capture_graphs
        from fusionkit.subjects.build import Subject

        inputs = (torch.randn(2, 3, 4, 16).bfloat16(), torch.randn(2, 3, 4, 16).bfloat16())
        subject = Subject(model=self.Model(), inputs=(*inputs, torch.rand(16).bfloat16()), name="half")
        capsule = write_capsule(capture_graphs(subject), tmp_path / "half.json")
        old = odd_file(tmp_path, dim="[-1]")
        words = ["repair", str(capsule), "--pattern", str(old), "--out"]
        assert main([*words, str(tmp_path / "one_pattern.py"), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["before"], told["after"]) == (0, 1)
        (missed,) = told["missed"]
        assert [(c["type"], c["graph_node"]) for c in missed["causes"]] == [("extra_user", "rsqrt_1")]
        assert missed["causes"][0]["pattern_source"].startswith("one_pattern.py:")
        assert main([*words, str(tmp_path / "two_pattern.py")]) == 0
        text = capsys.readouterr().out
        assert any("still missed" in line and f"({missed['anchor']}," in line for line in text.splitlines())
        assert "    extra_user: pattern node " in text


class TestUntraceable:
    def broken(self, folder, statement):
        path = odd_file(folder)
        text = path.read_text().replace("        variance = ", f"        {statement}\n        variance = ")
        path.write_text(text)
        return path

    def test_is_misuse_as_explain_has_it(self, flux, tmp_path, capsys):
        capsule = write_capsule(flux, tmp_path / "flux.json")
        path = self.broken(tmp_path, "raise ValueError('odd')")
        assert main(["repair", str(capsule), "--pattern", str(path), "--out", str(tmp_path / "x.py")]) == 2
        said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fusionkit: ")]
        assert len(said) == 1
        assert "pattern Trial: cannot be traced" in said[0]

    def test_code_without_end_is_waited_for_once(self, flux, tmp_path, monkeypatch):
        from fusionkit.pattern_files import time_limit

        monkeypatch.setattr(time_limit, "TIME_LIMIT_S", 1.0)
        path = self.broken(tmp_path, "HELD.add_(1)\n        while True: pass")
        tried = tmp_path / "tried.txt"
        text = path.read_text().replace("HELD.add_(1)", f"open({str(tried)!r}, 'a').write('x')")
        path.write_text(text)
        with pytest.raises(MisuseError, match="pattern Trial: tracing it does not end within 1 s"):
            repair(flux, path)
        assert tried.read_text() == "x"


class TestNotOffered:
    def test_where_the_replacement_is_wrong(self, flux, tmp_path):
        path = write_trial(tmp_path, "scaled by 1.01", eps="1e-6")
        report = repair(flux, path)
        assert not report
        assert report.text is None
        assert "break numerics" in report.reason
        with pytest.raises(MisuseError, match=r"no repair of .* is offered"):
            report.write(tmp_path / "fixed.py")
        assert not (tmp_path / "fixed.py").exists()

    def test_where_the_replacement_gives_another_form(self, flux, tmp_path):
        path = odd_file(tmp_path, dim="[-1]")
        path.write_text(path.read_text().replace("1e-6)[0]", "1e-6)[0].to(torch.float16)"))
        assert "extra_check" in repair(flux, path).reason

    def test_where_the_graph_has_nothing_of_the_kind(self, flux, tmp_path):
        path = tmp_path / "sin_pattern.py"
        path.write_text(
            textwrap.dedent(
                """
                import torch

                from fusionkit.patterns import PatternBase


                class Pattern(PatternBase):
                    name = staticmethod(lambda: "Sin")
                    inputs = staticmethod(lambda: [torch.empty(2, 3, device="meta")])
                    pattern = staticmethod(lambda x: x.sin().cosh())
                    replacement = staticmethod(lambda x: x.sin().cosh())


                SinPatternGroup = [Pattern]
                """
            )
        )
        report = repair(flux, path)
        assert (report.before, report.after, report.offered) == (0, 0, False)
        assert "no place of this graph" in report.reason

    def test_an_inner_node_that_is_used_elsewhere_is_said(self, tmp_path):
        class Model(torch.nn.Module):
            def forward(self, x, weight):
                h = x.to(torch.float32)
                scale = torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
                return weight * (h * scale).to(x.dtype), scale

        from fusionkit.capture.capturing import capture_graphs
        from fusionkit.subjects.build import Subject

        inputs = (torch.randn(2, 3, 16).bfloat16(), torch.rand(16).bfloat16())
        capture = capture_graphs(Subject(model=Model(), inputs=inputs, name="leaking"))
        report = repair(capture, "rms_norm")
        assert not report.offered
        assert report.reason.startswith("extra_user: 1 sites have an inner node")

    def test_unknown_patterns_and_windows_are_misuse(self, flux):
        from fusionkit.config import CompilationConfig

        with pytest.raises(MisuseError, match="'norm' is no pattern of the kit"):
            repair(flux, "norm")
        with pytest.raises(MisuseError, match="no graph was captured in window after-freezing"):
            repair(flux, "rms_norm", config=CompilationConfig(window="after-freezing"))


class TestCommand:
    def test_from_a_capsule_alone(self, flux, tmp_path, capsys):
        capsule = write_capsule(flux, tmp_path / "flux.json")
        old, out = odd_file(tmp_path, dim="[-1]"), tmp_path / "fixed_pattern.py"
        words = ["repair", str(capsule), "--pattern", str(old), "--out", str(out), "--json"]
        assert main(words) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["schema"], told["before"], told["after"]) == ("fusionkit.repair/1", 0, 12)
        assert out.read_text() == told["text"]
        assert main(words) == 2  # never overwritten
        assert "never overwritten" in capsys.readouterr().err

    def test_nothing_to_repair_is_exit_1_and_no_file(self, flux, tmp_path, capsys):
        capsule = write_capsule(flux, tmp_path / "flux.json")
        out = tmp_path / "fixed_pattern.py"
        assert main(["repair", str(capsule), "--pattern", str(odd_file(tmp_path)), "--out", str(out)]) == 1
        assert "no repair is offered: 12 sites hit already" in capsys.readouterr().out
        assert not out.exists()


class TestVaryingSizes:
    """GELU within a view and back: the view's sizes follow from nothing, and the result does not depend on them."""

    FILE = """
import torch

from fusionkit.patterns import PatternBase


class Pattern(PatternBase):
    name = staticmethod(lambda: "Within")
    inputs = staticmethod(lambda: [torch.empty(2, 2520, dtype=torch.bfloat16, device="meta")])

    @staticmethod
    def pattern(x):
        return torch.nn.functional.gelu(x.reshape(-1, 5), approximate="tanh").reshape(x.shape)

    @staticmethod
    def replacement(x):
        return torch.ops.npu.npu_gelu(x, approximate="tanh")


WithinPatternGroup = [Pattern]
"""

    def repaired(self, folder, widths):
        from fusionkit.capture.capturing import capture_graphs
        from fusionkit.subjects.build import Subject

        class Model(torch.nn.Module):
            def forward(self, x):
                for width in widths:
                    x = (
                        torch.nn.functional.gelu(x.reshape(-1, width), approximate="tanh").reshape(2, 2520)
                        + 1
                    )
                return x

        subject = Subject(model=Model(), inputs=(torch.randn(2, 2520).bfloat16(),), name="within")
        path = folder / "within_pattern.py"
        path.write_text(self.FILE)
        return repair(capture_graphs(subject), path)

    def test_a_few_values_give_a_variant_each(self, tmp_path):
        report = self.repaired(tmp_path, (7, 9, 11 - 3))
        assert (report.before, report.after, report.offered) == (0, 3, True), report.reason
        assert len(report.edits) == 3
        assert "graph_entries" not in report.text

    def test_many_values_give_a_graph_entry_that_ignores_them(self, tmp_path):
        report = self.repaired(tmp_path, (7, 8, 9, 10, 12, 14, 15, 18))
        assert (report.before, report.after, report.offered) == (0, 8, True), report.reason
        assert "def register_within_graph_entries" in report.text.replace("_repaired_1", "")
        assert "Arg(), Ignored())" in report.text
        assert {site.verdict for site in report.sites} == {Verdict.PASS}
