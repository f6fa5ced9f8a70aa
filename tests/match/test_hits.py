import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from shared_models import ALL, compiled, counts_of, fresh_block, small_subject

from fusionkit.capture.sources import module_path
from fusionkit.match.hits import judge_hits, report_hits
from fusionkit.match.matching import matching_of
from fusionkit.match.site_joins import FusedSite, join_sites
from fusionkit.match.uncounted import hits
from fusionkit.passes.site_match import SiteMatch
from fusionkit.subjects.site_counts import ExpectedCount, ExpectedSite
from fusionkit.verdict import Verdict


@pytest.mark.parametrize(
    ("subject", "wanted"),
    [
        ("flux", {"rms_norm": 12, "rope": 8, "ada_layer_norm": 11, "gelu": 6}),
        ("wan", {"rms_norm": 8, "gelu": 3}),
        ("llama", {"rms_norm": 5, "rope": 4, "swiglu": 2}),
    ],
)
def test_hits_equal_the_independent_count_at_the_same_places(subject, wanted):
    report = report_hits(matching_of(compiled(subject)), counts_of(subject))
    assert {name: len(entry.hits) for name, entry in report.patterns.items()} == wanted
    for name, entry in report.patterns.items():
        assert entry.verdict is Verdict.PASS, entry.reason
        assert entry.to_dict()["expected_sites"] == wanted[name]
        assert entry.join is not None
        for site, match in entry.join.joined:
            assert site.module in match.modules
    json.dumps(report.to_dict())


def site(module, ordinal=0):
    return ExpectedSite("p", module, "f.py:1", "f.py:2", ordinal)


def match(module, status="hit", anchor="n", reason=None):
    return SiteMatch("p", "v", 0, status, reason, anchor, module, "f.py:1", (anchor,), (module,))


def count(*modules, declared=None, complete=True):
    return ExpectedCount("p", tuple(site(m, i) for i, m in enumerate(modules)), declared, complete)


VERDICTS = [
    ("all hit", [match("a"), match("b")], [], count("a", "b"), None, "PASS", "2 hits of 2 sites"),
    ("one missed", [match("a")], [], count("a", "b"), None, "FAIL", "1 hits of 2 sites; missed: b"),
    (
        "another place",
        [match("a"), match("c")],
        [],
        count("a", "b"),
        None,
        "FAIL",
        "matches where no site was counted: c",
    ),
    (
        "fused by the library",
        [match("a")],
        [FusedSite("f", "b", "lib.py:3", 0, "npu_p")],
        count("a", "b"),
        None,
        "PASS",
        "1 already fused by the library (lib.py:3 calls npu_p)",
    ),
    (
        "skipped",
        [match("a"), match("b", "skipped", reason="D odd")],
        [],
        count("a", "b"),
        None,
        "PASS",
        "1 skipped: D odd",
    ),
    (
        "all skipped",
        [match("a", "skipped", reason="D odd")],
        [],
        count("a"),
        None,
        "INCONCLUSIVE",
        "nothing was replaced",
    ),
    ("no count", [match("a")], [], None, None, "INCONCLUSIVE", "no independent site count"),
    (
        "no count, skipped",
        [match("a", "skipped", reason="D odd")],
        [],
        None,
        None,
        "INCONCLUSIVE",
        "0 hits, 1 skipped: D odd, but no independent site count",
    ),
    ("zero sites", [], [], count(), None, "INCONCLUSIVE", "zero sites"),
    ("asserted", [match("a")], [], count("a"), 2, "FAIL", "expected_sites.p says 2, 1 were found"),
    ("asserted right", [match("a")], [], count("a"), 1, "PASS", "1 hits of 1 sites"),
    (
        "declared more",
        [match("a"), match("b")],
        [],
        count("a", declared=2, complete=False),
        None,
        "PASS",
        "2 hits of 2",
    ),
    ("declared less", [match("a")], [], count("a", declared=0, complete=False), None, "FAIL", "says 0"),
]


@pytest.mark.parametrize(
    ("found", "fused", "counted", "asserted", "verdict", "reason"),
    [v[1:] for v in VERDICTS],
    ids=[v[0] for v in VERDICTS],
)
def test_verdicts(found, fused, counted, asserted, verdict, reason):
    entry = judge_hits("p", tuple(found), tuple(fused), counted, asserted)
    assert str(entry.verdict) == verdict, entry.reason
    assert reason in entry.reason


def test_two_sites_of_one_module_take_two_matches():
    joined = join_sites(
        [site("attn"), site("attn", 1)], [match("attn", anchor="q"), match("attn", anchor="k")]
    )
    assert [m.anchor for _, m in joined.joined] == ["q", "k"]
    assert joined.missing == joined.surplus == ()


def test_a_users_own_model_needs_no_table():
    report = hits(small_subject())
    assert report.patterns["rms_norm"].verdict is Verdict.FAIL  # the hand-written norm is counted by nobody
    report = hits(small_subject(expected_sites={"rms_norm": 2}), patterns=["rms_norm", "gelu"])
    assert {name: str(e.verdict) for name, e in report.patterns.items()} == {
        "rms_norm": "PASS",
        "gelu": "PASS",
    }


def test_two_backends_in_one_process_do_not_see_each_other():
    """Different configs, one model class, interleaved: each session counts its own compile only."""
    import torch

    from fusionkit.capture.aot import aot_backend
    from fusionkit.config import CompilationConfig, select_patterns
    from fusionkit.passes.compiled import CompileSession, pattern_groups

    norms = CompilationConfig(fusion_patterns=select_patterns(("rms_norm",)))
    gelus = CompilationConfig(fusion_patterns=select_patterns(("gelu",)))
    first, second = (CompileSession(c, pattern_groups(c)) for c in (norms, gelus))
    torch.manual_seed(0)
    block = fresh_block()
    one, other = block().bfloat16().eval(), block().bfloat16().eval()
    x = torch.randn(2, 6, 16).bfloat16()
    with torch.no_grad():
        a, b = (
            torch.compile(one, backend=aot_backend(first)),
            torch.compile(other, backend=aot_backend(second)),
        )
        a(x), b(x), a(x), b(x)
        torch.compile(one, backend=aot_backend(second))(x)
    assert [m.pattern for m in first.matches] == ["rms_norm", "rms_norm"]
    assert [m.pattern for m in second.matches] == ["gelu", "gelu"]
    assert first.patterns == ("rms_norm",)
    assert second.patterns == ("gelu",)


def test_default_patterns_are_those_that_are_counted():
    assert set(compiled("wan").session.patterns) == {"rms_norm", "gelu"}
    assert ALL.fusion_patterns.enable_swiglu


def test_a_site_behind_a_break_is_not_captured_rather_than_missed_where_nothing_is_computed():
    subject = compiled("llama")
    matching = matching_of(subject)
    counts = counts_of("llama")
    lost = [site for site in counts["rms_norm"].sites if site.module == "model.norm"]
    assert lost
    graph = matching.capture.graphs[0]
    kept = [node for node in graph.nodes if not module_path(node).startswith("model.norm")]
    cut = dataclasses.replace(
        matching,
        matches=tuple(match for match in matching.matches if match.module != "model.norm"),
        capture=dataclasses.replace(
            matching.capture, target="npu-dry", breaks=("Unsupported Tensor.item() call (x1)",)
        ),
    )
    told = report_hits(cut, counts).patterns["rms_norm"]
    assert told.verdict is Verdict.FAIL  # its module stands in a graph: a miss
    for node in set(graph.nodes) - set(kept):
        node.meta.pop("nn_module_stack", None)
    try:
        told = report_hits(cut, counts).patterns["rms_norm"]
        assert told.verdict is Verdict.INCONCLUSIVE
        assert "not captured: npu-dry has no graph behind the break (Unsupported Tensor.item()" in told.reason
        on_cpu = dataclasses.replace(cut, capture=dataclasses.replace(cut.capture, target="cpu"))
        assert report_hits(on_cpu, counts).patterns["rms_norm"].verdict is Verdict.FAIL
    finally:
        compiled.cache_clear()


def test_a_capture_is_matched_in_a_process_that_has_chosen_no_target():
    """The replacements' ops are there, whoever comes first."""
    code = (
        "import torch\n"
        "from shared_models import small_subject\n"
        "from fusionkit.capture.capturing import capture_graphs\n"
        "from fusionkit.match.matching import match_groups\n"
        "from fusionkit.patterns.rms_norm_pattern import RmsNormPattern\n"
        "groups = {'rms_norm': [RmsNormPattern.create(torch.bfloat16)]}\n"
        "found = match_groups(capture_graphs(small_subject()), groups, 'before-freezing')\n"
        "print([match.status for match in found.matches])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=with_tests_on_path()
    )
    assert done.stdout.strip() == "['hit']", done.stderr[-500:]


def with_tests_on_path():
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
