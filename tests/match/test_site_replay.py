"""Every hit replayed: the right replacement passes, each known defect is refused."""

import pytest
import torch
from shared_models import compiled, counts_of, table_subject

from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.match.site_replay import replay_hits, replay_match, site_values
from fusionkit.match.whole_model import compare_model, visible_scale
from fusionkit.passes.compiled import compile_subject
from fusionkit.patterns.rms_norm_pattern import RmsNormPattern
from fusionkit.subjects.load import load_subject
from fusionkit.verdict import Verdict


@pytest.mark.parametrize("name", ["flux", "wan", "llama"])
def test_every_hit_passes(name):
    report = replay_hits(compiled(name))
    assert len(report.sites) == sum(len(c.sites or ()) for c in counts_of(name).values())
    assert report.verdict is Verdict.PASS, report.reason


def rms(x, w, eps):
    return torch.ops.npu.npu_rms_norm(x, w, eps)[0]


def zeroed(x, w, eps):
    y = rms(x, w, eps)
    flat = y.reshape(-1, y.shape[-1]).clone()
    flat[:2] = 0
    return flat.reshape(y.shape)


DEFECTS = {
    "scaled by 1.01": lambda x, w, eps: rms(x, w, eps) * 1.01,
    "two rows zeroed": zeroed,
    "eps 1e-2": lambda x, w, eps: rms(x, w, 1e-2),
    "gain lost": lambda x, w, eps: rms(x, torch.ones_like(w), eps),
}


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS)
@pytest.mark.parametrize("seed", range(2))
def test_a_defect_is_refused_at_every_site(defect, seed):
    good = compiled("flux")
    graph = good.before[0]
    matches = [m for m in good.matches if m.pattern == "rms_norm"]
    values = site_values(graph, good.session.inputs[0], matches)
    bad = type("Bad", (RmsNormPattern.create(torch.bfloat16),), {"replacement": staticmethod(defect)})
    for match in matches[::4]:
        assert replay_match(graph, match, bad, values, seed=seed).verdict is Verdict.FAIL


@pytest.mark.parametrize("seed", range(2))
def test_the_right_replacement_passes_at_a_site(seed):
    good = compiled("flux")
    matches = [m for m in good.matches if m.pattern == "rms_norm"]
    values = site_values(good.before[0], good.session.inputs[0], matches)
    replay = replay_match(
        good.before[0], matches[0], RmsNormPattern.create(torch.bfloat16), values, seed=seed
    )
    assert replay.verdict is Verdict.PASS, replay.reason


def test_sites_of_equal_form_share_one_search():
    report = replay_hits(compiled("flux"))
    forms = {id(replay.search) for _, replay in report.sites}
    assert len(report.searches) == len(forms) < len(report.sites)
    written = report.to_dict()
    assert {site["search"] for site in written["sites"]} == set(range(len(forms)))


@pytest.mark.parametrize("name", ["flux", "llama"])
def test_the_whole_model_passes_in_float32(name):
    result = compare_model(compile_subject(load_subject(name, dtype="float32"), compiled(name).config))
    assert result.dtype == "float32"
    assert result.verdict is Verdict.PASS, result.reason


def test_no_hit_means_nothing_was_compared():
    none = compile_subject(
        table_subject("llama"),
        CompilationConfig(fusion_patterns=select_patterns(("gelu",))),
        keep_inputs=True,
    )
    assert replay_hits(none).verdict is Verdict.INCONCLUSIVE
    assert compare_model(none).verdict is Verdict.INCONCLUSIVE


def test_the_working_dtype_sees_less_than_a_site():
    result = visible_scale(compiled("llama"), compare_model(compiled("llama")))
    assert result.smallest is None or result.smallest >= 1.003


def test_a_model_without_a_float64_reference_is_inconclusive_and_says_so():
    """transformers' grouped products take no float64: the sites still have their own verdicts."""
    model = compare_model(compile_subject(load_subject("qwen3-moe")))
    assert model.verdict is Verdict.INCONCLUSIVE
    assert model.reason.startswith("no float64 reference: ")
    assert model.reference == ()


def test_a_cast_behind_the_site_is_compared_only_where_the_replacement_makes_it():
    """QwenImage casts a norm's output to float32 for its complex rope; the replacement stays in bfloat16."""
    config = CompilationConfig(fusion_patterns=select_patterns(("rms_norm",)))
    replays = replay_hits(compile_subject(load_subject("qwen-image"), config, keep_inputs=True))
    assert len(replays.sites) == 9
    assert replays.verdict is Verdict.PASS, replays.reason
