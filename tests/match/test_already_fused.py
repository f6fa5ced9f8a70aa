"""Sites that the model's own library fused: a state of their own, told by the line that calls the fused op."""

import pytest
from made_capsules import GEGLU, NORM, dry_capsule
from shared_models import compiled

from fusionkit.capture.capsule import write_capsule
from fusionkit.capture.reading import read_capsule
from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.match.explanation.missing import explain_pattern
from fusionkit.match.hits import report_hits
from fusionkit.match.matching import match_subject
from fusionkit.match.site_joins import already_fused
from fusionkit.store import write_json
from fusionkit.verdict import Verdict

CONFIG = CompilationConfig(fusion_patterns=select_patterns(("rms_norm",)))
LINE = "diffusers/models/normalization.py:550 calls npu_rms_norm"


def read(tmp_path, data):
    return read_capsule(write_json(tmp_path / "dry.json", data))


def fused_node(data):
    return next(node for node in data["graphs"][0]["nodes"] if node["name"] == "npu_rms_norm")


def test_a_fused_site_is_no_hit_and_says_which_line_fused_it(tmp_path):
    capture = read(tmp_path, dry_capsule())
    entry = report_hits(match_subject(capture, CONFIG), capture.counts).patterns["rms_norm"]
    told = entry.to_dict()
    assert (told["hits"], told["expected_sites"], told["verdict"]) == (1, 2, "PASS")
    assert [site["module"] for site in told["sites"]] == ["own"]
    assert told["already_fused"] == [
        {
            "anchor": "npu_rms_norm",
            "module": "norm",
            "source": NORM[0],
            "reason": f"already fused by the library: {LINE}",
            "graph": 0,
        }
    ]
    assert told["skipped"] == told["missing"] == []
    assert LINE in told["reason"]
    assert entry.join is not None
    assert [(site.module, type(found).__name__) for site, found in entry.join.joined] == [
        ("norm", "FusedSite"),
        ("own", "SiteMatch"),
    ]


def test_explain_lists_it_without_a_cause(tmp_path):
    capture = read(tmp_path, dry_capsule())
    report = explain_pattern(match_subject(capture, CONFIG), "rms_norm", dict(capture.counts)).to_dict()
    assert [(site["module"], site["status"], site["causes"]) for site in report["sites"]] == [
        ("own", "hit", []),
        ("norm", "already_fused", []),
    ]
    assert LINE in report["sites"][1]["reason"]


def test_a_fused_op_at_a_place_that_nobody_counted_is_not_passed_over(tmp_path):
    data = dry_capsule()
    data["sites"]["rms_norm"]["sites"] = data["sites"]["rms_norm"]["sites"][1:]
    capture = read(tmp_path, data)
    entry = report_hits(match_subject(capture, CONFIG), capture.counts).patterns["rms_norm"]
    assert entry.verdict is Verdict.FAIL
    assert "no site was counted: norm" in entry.reason


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "diffusers/models/normalization.py:553",
            "hidden_states = hidden_states * torch.rsqrt(variance + eps)",
        ),
        ("diffusers/models/transformers/transformer_flux.py:102", "query = attn.norm_q(query)"),
        ("mine/my_rms_norm_pattern.py:30", "return torch_npu.npu_rms_norm(x, weight, 1e-6)[0]"),
        ("model.py:3", "y = my_npu_rms_norm_like(x)"),
        ("", ""),
    ],
)
def test_a_fused_op_whose_line_does_not_call_it_is_not_the_librarys(tmp_path, source, text):
    data = dry_capsule()
    fused_node(data).update(source=source, text=text)
    capture = read(tmp_path, data)
    assert already_fused("rms_norm", capture.graphs) == ()
    report = explain_pattern(match_subject(capture, CONFIG), "rms_norm", dict(capture.counts))
    assert [item.module for item in report.missed] == ["norm"]
    assert "npu_rms_norm" in report.missed[0].causes[0].actual


def test_what_the_kits_own_patterns_put_in_is_not_the_librarys(tmp_path):
    after = compiled("flux").after
    assert sum("npu_rms_norm" in str(node.target) for node in after[0].nodes) == 12
    reread = read_capsule(write_capsule(compiled("flux").capture(after), tmp_path / "after.json"))
    for name in compiled("flux").session.patterns:
        assert already_fused(name, after) == already_fused(name, reread.graphs) == ()


def test_geglu_is_a_fusion_of_its_own_not_a_gelu(tmp_path):
    graphs = read(tmp_path, dry_capsule()).graphs
    assert already_fused("gelu", graphs) == ()
    assert [(site.module, site.source, site.op) for site in already_fused("geglu", graphs)] == [
        ("ff", GEGLU[0], "npu_geglu")
    ]


def test_the_installed_library_has_the_lines_that_are_looked_for():
    """diffusers: RMSNorm and GEGLU name the op in the statement that calls it."""
    diffusers = pytest.importorskip("diffusers")
    import inspect

    from diffusers.models import activations, normalization

    for kind, op in ((normalization.RMSNorm, "npu_rms_norm"), (activations.GEGLU, "npu_geglu")):
        lines = [line for line in inspect.getsource(kind.forward).splitlines() if f"torch_npu.{op}(" in line]
        assert len(lines) == 1, diffusers.__version__
