"""Causes that only runs show: switches, windows, registration, decomposition tables, equal patterns."""

import dataclasses
import textwrap

import pytest
import torch
from shared_models import compiled, counts_of, small_subject

from fusionkit.capture.capturing import capture_graphs
from fusionkit.config import CompilationConfig, FusionPatterns
from fusionkit.match.explanation.missing import explain_capture
from fusionkit.npu.target import use_target

FILE = """
    import torch
    from fusionkit.patterns import PatternBase

    class TrialPattern:
        @staticmethod
        def create(dtype):
            class Pattern(PatternBase):
                @staticmethod
                def name():
                    return "TrialPattern"

                @staticmethod
                def inputs():
                    x = torch.empty(2, 4, 8, 16, dtype=dtype, device="meta")
                    return [x, torch.empty(16, dtype=dtype, device="meta")]

                @staticmethod
                def pattern(x, weight):
                    h = x.to(torch.float32)
                    mean = torch.ops.aten.mean.dim(h.pow(2), [x.dim() - 1], True)
                    scale = torch.rsqrt(torch.ops.aten.add.Scalar(mean, 9.999999974752427e-07))
                    return (h * scale * weight).to(x.dtype)

                @staticmethod
                def replacement(x, weight):
                    return torch.ops.npu.npu_rms_norm(x, weight, 1e-6)[0]

            return Pattern

    TrialPatternGroup = [TrialPattern.create(torch.bfloat16)]
    """


@pytest.fixture(scope="module")
def flux():
    use_target("cpu")
    return dataclasses.replace(compiled("flux", plain=True).capture(), counts=counts_of("flux"))


@pytest.fixture
def trial(tmp_path):
    path = tmp_path / "trial_pattern.py"
    path.write_text(textwrap.dedent(FILE), "utf-8")
    return path


def causes(report):
    return {tuple(cause.type for cause in item.causes) for item in report.missed}


def test_a_flag_that_is_off_is_the_cause_at_every_site_that_would_hit(flux):
    config = CompilationConfig(fusion_patterns=FusionPatterns(enable_rms_norm=False))
    (report,) = explain_capture(flux, "rms_norm", config)
    assert len(report.missed) == 12
    assert causes(report) == {("flag_off",)}
    cause = report.missed[0].causes[0]
    assert (cause.expected, cause.actual) == ("enable_rms_norm=True", "enable_rms_norm=False")
    assert len(report.hits.hits) == 0


def test_a_flag_that_is_on_is_no_cause(flux):
    (report,) = explain_capture(flux, "rms_norm", CompilationConfig())
    assert len(report.hits.hits) == 12
    assert report.missed == ()


def test_a_file_that_the_config_does_not_name(flux, trial):
    (report,) = explain_capture(flux, trial, CompilationConfig())
    assert len(report.missed) == 12
    assert causes(report) == {("not_registered",)}
    (named,) = explain_capture(flux, trial, CompilationConfig(pattern_files=(str(trial),)))
    assert named.missed == ()


def test_a_pattern_traced_with_another_table_is_named_as_such(flux, trial):
    (report,) = explain_capture(flux, trial, pattern_table="inductor")
    assert len(report.hits.hits) == 0
    assert len(report.missed) == 12
    first = report.missed[0].causes[0]
    assert (first.type, first.expected, first.actual) == (
        "decomposition",
        "prims.convert_element_type.default",
        "aten._to_copy.default",
    )
    assert "traced with table 'inductor', and hits when traced with 'none'" in first.fix
    (right,) = explain_capture(flux, trial, pattern_table="none")
    assert right.missed == ()


def put_clone_behind(node):
    with node.graph.inserting_after(node):
        clone = node.graph.call_function(torch.ops.aten.clone.default, (node,))
    clone.meta = dict(node.meta)
    node.replace_all_uses_with(clone, delete_user_cb=lambda user: user is not clone)


def test_a_pattern_that_hits_in_the_other_window_is_told():
    use_target("cpu")
    capture = capture_graphs(small_subject(), freezing=True)
    assert len(explain_capture(capture, "rms_norm")[0].hits.hits) == 2
    (graph,) = capture.in_window("before-freezing")
    for scale in graph.module.graph.find_nodes(op="call_function", target=torch.ops.aten.rsqrt.default):
        put_clone_behind(scale)
    (report,) = explain_capture(capture, "rms_norm")
    assert causes(report) == {("wrong_window", "missing_node")}
    assert report.missed[0].causes[0].expected.startswith("window after-freezing")


def test_an_equal_variant_is_idle(flux, trial):
    text = trial.read_text("utf-8")
    trial.write_text(text + "\nTrialPatternGroup *= 2\n", "utf-8")
    (report,) = explain_capture(flux, trial)
    assert len(report.hits.hits) == 12
    assert report.idle == {}  # equal in pattern and replacement: nothing is lost
    other = "\n\nclass Other(TrialPatternGroup[0]):\n    name = staticmethod(lambda: 'Other')\n"
    other += (
        "    replacement = staticmethod(lambda x, weight: torch.ops.npu.npu_rms_norm(x, weight, 2e-6)[0])\n"
    )
    trial.write_text(f"{text}{other}\nTrialPatternGroup.append(Other)\n", "utf-8")
    (report,) = explain_capture(flux, trial)
    assert {name: cause.actual for name, cause in report.idle.items()} == {"Other": "equal to TrialPattern"}


def test_what_the_matcher_cannot_hold_is_told_by_site(flux, trial):
    text = trial.read_text("utf-8").replace("(x, weight):", "(x, weight, more):")
    trial.write_text(text.replace('device="meta")]', 'device="meta"), x]'), "utf-8")
    (report,) = explain_capture(flux, trial)
    assert len(report.missed) == 12
    assert causes(report) == {("unused_argument",)}
    assert report.missed[0].causes[0].pattern_node == "more_1"
