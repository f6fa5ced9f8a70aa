"""What no count covers is in the report: by name, INCONCLUSIVE, and as a near miss where a place resembles a pattern."""

import pytest
import torch
from shared_models import counts_of, table_subject
from torch import nn

from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.fusions import pattern_names
from fusionkit.match.matching import match_subject
from fusionkit.match.uncounted import hits, report_all
from fusionkit.npu.target import use_target
from fusionkit.subjects.build import Subject
from fusionkit.verdict import Verdict


class HandNorm(nn.Module):
    """An RMSNorm that casts twice and multiplies by its gain in the working dtype: no variant of the kit hits it."""

    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-5)
        return (x.float() * scale).type_as(x) * self.gain


class HandSwiglu(nn.Module):
    """SiLU written out, which no counter knows."""

    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)

    def forward(self, x):
        gate, up = self.up(x).chunk(2, dim=-1)
        return gate * torch.sigmoid(gate) * up


class Plain(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.up(x)) + x


def subject_of(*parts, **changes):
    use_target("cpu")
    torch.manual_seed(0)
    model = nn.Sequential(*parts).bfloat16().eval()
    return Subject(model, (torch.randn(2, 6, 16).bfloat16(),), name="own", **changes)


def test_uncounted_near_misses_stand_beside_the_pass():
    report = hits(subject_of(nn.GELU("tanh"), HandNorm(16), HandNorm(16)))
    assert report.patterns["gelu"].verdict is Verdict.PASS
    norms = report.patterns["rms_norm"]
    assert norms.verdict is Verdict.INCONCLUSIVE
    assert [place.module for place in norms.near] == ["1", "2"]
    assert "2 near misses where no site was counted: 1, 2 (" in norms.reason
    assert norms.near[0].source.rpartition(":")[0].endswith("test_uncounted.py")
    assert [row["reason"] for row in norms.to_dict()["near_misses"]] == [
        "resembles GainLastRmsNormPattern_bfloat16"
    ] * 2
    assert report.absent == ("rope", "swiglu", "ada_layer_norm")


def test_a_pass_on_a_lower_bound_is_none_beside_near_misses():
    own = (nn.RMSNorm(16, eps=1e-6), HandNorm(16))
    entry = hits(subject_of(*own)).patterns["rms_norm"]
    assert entry.verdict is Verdict.INCONCLUSIVE
    assert entry.reason.startswith("1 hits of 1 sites; 1 near misses where no site was counted: 1 (")
    declared = hits(subject_of(*own, expected_sites={"rms_norm": 1})).patterns["rms_norm"]
    assert (declared.verdict, declared.near) == (Verdict.PASS, ())  # the author's number is the whole count


def test_a_composite_written_out_is_a_near_miss():
    report = hits(subject_of(HandSwiglu(16)))
    assert [place.module for place in report.patterns["swiglu"].near] == ["0"]


def test_a_model_without_any_primitive_lists_no_pattern():
    report = hits(subject_of(Plain(16)))
    assert (dict(report.patterns), report.absent) == ({}, pattern_names())
    named = hits(subject_of(Plain(16)), patterns=["gelu"])
    assert named.patterns["gelu"].verdict is Verdict.INCONCLUSIVE
    assert named.absent == ("gelu",)


@pytest.mark.parametrize(
    ("name", "uncounted", "absent"),
    [
        ("wan", {"ada_layer_norm": 5}, ("rope", "swiglu")),
        ("llama", {}, ("ada_layer_norm", "gelu")),  # its norms and residual additions resemble no layer norm
        ("flux", {}, ("swiglu",)),
    ],
)
def test_the_table_s_models_name_what_is_not_counted(name, uncounted, absent):
    every = CompilationConfig(fusion_patterns=select_patterns(pattern_names()))
    report = report_all(match_subject(table_subject(name), every), counts_of(name))
    unsure = {key: entry for key, entry in report.patterns.items() if entry.verdict is Verdict.INCONCLUSIVE}
    assert {key: len(entry.hits) for key, entry in unsure.items()} == uncounted
    assert report.absent == absent
    assert all(entry.verdict for key, entry in report.patterns.items() if key not in uncounted)
