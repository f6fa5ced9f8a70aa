"""What is offered computes what the site computes: also beyond limits, with NaN, under masks, and in float32."""

from __future__ import annotations

import pytest
import torch
from near_sites import FILE, SITES, capture_of, norm, site_nodes

from fusionkit.match.repairing.region import region_of_nodes
from fusionkit.match.repairing.region_numbers import exact, prove
from fusionkit.match.repairing.repair import repair
from fusionkit.match.repairing.synthesis import synthesize
from fusionkit.pattern_files.naming import FusionNames
from fusionkit.verdict import Verdict

TAKEN = {"erf": 'npu_gelu(x, approximate="none")', "sigmoid": "npu_fast_gelu(x)"}
NEAREST = {"capped gelu": "npu_gelu", "limited swiglu": "npu_swiglu"}


class TestSynthesis:
    @pytest.mark.parametrize("kind", list(SITES))
    def test_takes_the_op_that_is_exact_or_none_and_says_how_it_differs(self, kind):
        capture = capture_of(SITES[kind])
        report = synthesize(capture, "near", nodes=site_nodes(capture))
        assert (report.sites, report.hits) == (1, 1)
        ((_, taken),) = report.taken
        if kind in TAKEN:
            assert taken
            assert TAKEN[kind] in report.text
            return
        assert taken is None
        assert "TODO" in report.text
        if kind in NEAREST:
            assert report.differs[0].startswith(f"{NEAREST[kind]} differs: ")
            assert "expected" in report.differs[0]

    def test_the_norm_before_a_clamp_has_its_op(self):
        capture = capture_of(SITES["clamped"])
        report = synthesize(capture, "near", nodes=site_nodes(capture)[:-1])
        assert "npu_rms_norm(x, weight, 1e-05)[0]" in report.text


class TestRepair:
    def offered(self, folder, site, **parts):
        path = folder / "own_pattern.py"
        path.write_text(FILE.format(**parts))
        return repair(capture_of(SITES[site]), path)

    def test_the_exact_call_of_the_op_replaces_one_that_is_not(self):
        """GELU by the error function, where the pattern has the tanh form."""
        report = repair(capture_of(SITES["erf"]), "gelu")
        assert (report.after, report.offered) == (1, True)
        assert 'return torch.ops.npu.npu_gelu(x, approximate="none")' in report.text
        (edits,) = report.edits.values()
        assert any(line.startswith("replacement: not equal at this site -> ") for line in edits)
        assert [site.verdict for site in report.sites] == [Verdict.PASS]

    def test_limits_are_not_taken_into_the_search_part(self):
        report = repair(capture_of(SITES["limited swiglu"]), "swiglu")
        assert not report.offered
        assert "expected" in report.reason

    def test_a_limit_with_another_value_is_refused(self, tmp_path):
        """The pattern clamps at 1000, which its replacement leaves out; the graph clamps at 20."""
        report = self.offered(
            tmp_path,
            "clamped",
            inputs=2,
            arguments="x, weight",
            pattern="_norm(x, weight, 1e-5).clamp(-1000.0, 1000.0)",
            replacement="torch.ops.npu.npu_rms_norm(x, weight, 1e-5)[0]",
        )
        assert not report.offered
        assert "break numerics" in report.reason
        assert "expected [" in report.reason

    def test_a_mask_that_the_replacement_ignores_is_refused(self, tmp_path):
        report = self.offered(
            tmp_path,
            "masked",
            inputs=3,
            arguments="x, weight, mask",
            pattern="_norm(x, weight, 1e-6).masked_fill(mask[..., None], 0.0)",
            replacement="torch.ops.npu.npu_rms_norm(x, weight, 1e-6)[0] + 0 * mask[..., None].to(x.dtype)",
        )
        assert not report.offered

    def test_a_number_that_both_functions_have_is_exact_with_the_graphs_value(self, tmp_path):
        """eps 1e-3 in both functions, 1e-5 in the graph: the number becomes an argument, not another replacement."""
        report = self.offered(
            tmp_path,
            "doubled",
            inputs=2,
            arguments="x, weight",
            pattern="_norm(x, weight, 1e-3)",
            replacement="torch.ops.npu.npu_rms_norm(x, weight, 1e-3)[0]",
        )
        assert report.offered, report.reason
        assert "replacement(x, weight, eps=1e-05)" in report.text
        (edits,) = report.edits.values()
        assert not any(line.startswith("replacement: ") for line in edits)


class TestNames:
    def test_a_repaired_file_has_the_names_of_the_new_one_and_passes_lint(self, tmp_path):
        from fusionkit.passes.lint import lint_pattern_file

        report = repair(capture_of(SITES["erf"]), "gelu", names=FusionNames("model_gelu"))
        path = report.write(tmp_path / "model_gelu_pattern.py")
        assert [finding for finding in lint_pattern_file(path).findings if finding.severity == "error"] == []
        assert "ModelGeluPatternGroup = [" in path.read_text()


class TestFilter:
    def region(self, function, until=None):
        graph = capture_of(function).graphs[0].module.graph
        nodes = [node for node in graph.nodes if node.op == "call_function"][1:-1]
        return region_of_nodes(nodes[:until])

    def test_float32_tells_forms_apart_that_half_precision_does_not(self):
        region = self.region(SITES["erf"])
        gelu = torch.nn.functional.gelu
        assert exact(region, gelu)
        assert not exact(region, lambda x: gelu(x, approximate="tanh"))

    def test_a_candidate_without_float32_is_compared_in_the_sites_dtype(self):
        region = self.region(SITES["erf"])
        assert exact(region, lambda x: torch.nn.functional.gelu(x.bfloat16()))
        assert not exact(region, lambda x: torch.nn.functional.relu(x.bfloat16()))

    def test_a_proof_is_held_in_float32_too(self):
        """Off by 2 ** -12: nothing in bfloat16, thousands of ulp in float32."""
        region = self.region(lambda x, gain, keep: norm(x, gain))
        npu = torch.ops.npu.npu_rms_norm

        def off(x, gain):
            made = npu(x, gain, 1e-5)[0]
            return made * (1 + 2**-12) if made.dtype is torch.float32 else made

        order = [node.name for node in region.inputs]
        swapped = order != sorted(order, key=lambda name: region.input_values[order.index(name)].dim() == 1)
        candidate = (lambda gain, x: off(x, gain)) if swapped else off
        assert prove(region, candidate, in_float32=False).verdict is Verdict.PASS
        proof = prove(region, candidate)
        assert proof.verdict is Verdict.FAIL
        assert "in float32" in proof.reason
