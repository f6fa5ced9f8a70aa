"""Cases that torch's matcher passes by, or takes wrongly, without a word: each has a cause, a hit and a near miss."""

import pytest
import torch
import torch.nn.functional as F
from own_patterns import capture_of, causes, explained, model_of, pattern_of
from torch._higher_order_ops.auto_functionalize import auto_functionalized, auto_functionalized_v2

from fusionkit.capture.capturing import capture_graphs
from fusionkit.match.explanation.missing import explain_capture, explain_missing, explain_pattern
from fusionkit.match.matching import match_groups
from fusionkit.patterns.rms_norm_pattern import RmsNormPattern
from fusionkit.subjects.build import Subject
from fusionkit.subjects.site_counts import expected_counts

X = torch.randn(2, 8)


def one(function, search, *inputs):
    """The report of one pattern on a model of one site."""
    replacement = search
    return explained(
        capture_of(model_of(lambda _, *x: function(*x)), *inputs), pattern_of(search, replacement, inputs)
    )


def tanh_gelu(x):
    return F.gelu(x, approximate="tanh")


def erf_gelu(x):
    return F.gelu(x)


def add(x, y):
    return x + y


HALF = lambda x, y: torch.add(x, y, alpha=0.5)  # noqa: E731
KEYWORDS = {
    "gelu": (tanh_gelu, erf_gelu, (X,), "no approximate", "approximate=tanh"),
    "add": (HALF, add, (X, X + 1), "no alpha", "alpha=0.5"),
    "sub": (lambda x, y: torch.sub(x, y, alpha=2), lambda x, y: x - y, (X, X + 1), "no alpha", "alpha=2"),
    "mean": (
        lambda x: x.mean(-1, dtype=torch.float64),
        lambda x: x.mean(-1),
        (X,),
        "no dtype",
        "dtype=float64",
    ),
}


@pytest.mark.parametrize(
    ("written", "search", "inputs", "expected", "actual"), KEYWORDS.values(), ids=KEYWORDS
)
def test_a_keyword_that_the_pattern_omits_and_the_graph_has_is_no_hit(
    written, search, inputs, expected, actual
):
    report = one(written, search, *inputs)
    assert report.hits.hits == ()
    (refused,) = report.hits.refused
    assert (refused.cause, "kwargs_structure" in refused.reason) == ("kwargs_structure", True)
    ((cause,),) = [item.causes for item in report.missed]
    assert (cause.type, cause.expected, cause.actual) == ("kwargs_structure", expected, actual)
    assert cause.graph_node == refused.anchor


KEYWORD_HITS = {
    "gelu, both with the keyword": (tanh_gelu, tanh_gelu, (X,)),
    "gelu, both without": (erf_gelu, erf_gelu, (X,)),
    "the default, written out": (lambda x, y: torch.add(x, y, alpha=1), add, (X, X + 1)),
    "both halves": (HALF, HALF, (X, X + 1)),
    "a dtype that the operand has": (
        lambda x: x.mean(-1, dtype=torch.float32),
        lambda x: x.mean(-1),
        (X,),
    ),
    "a memory format": (
        lambda x: x.clone(memory_format=torch.contiguous_format).sin(),
        lambda x: x.clone().sin(),
        (X,),
    ),
    "layout and device of a cast": (
        lambda x: x.to(torch.bfloat16).sin(),
        lambda x: torch.ops.aten._to_copy.default(x, dtype=torch.bfloat16).sin(),
        (X,),
    ),
}


@pytest.mark.parametrize(("written", "search", "inputs"), KEYWORD_HITS.values(), ids=KEYWORD_HITS)
def test_a_keyword_that_changes_nothing_is_a_hit(written, search, inputs):
    report = one(written, search, *inputs)
    assert (len(report.hits.hits), report.missed) == (1, ())


def test_a_keyword_of_another_value_is_a_literal():
    """Near miss: the pattern names the keyword too."""
    report = one(HALF, lambda x, y: torch.add(x, y, alpha=0.25), X, X + 1)
    assert causes(report) == [("scalar_literal", "add")]


def modulated(x, scale):
    return torch.mul(x.sin(), scale)


def dtype_report(scale, search=modulated, behind=None):
    written = (lambda x, s: search(x, s)) if behind is None else (lambda x, s: behind(search(x, s)))
    capture = capture_of(model_of(lambda _, *x: written(*x)), X, scale)
    return explained(capture, pattern_of(search, search, (X, scale)))


def test_a_tensor_of_a_dtype_without_code_is_named():
    report = dtype_report(torch.randn(2, 8, dtype=torch.complex64))
    ((cause,),) = [item.causes for item in report.missed]
    assert (cause.type, cause.graph_node, cause.edit) == ("unsupported_dtype", "mul", None)
    assert cause.actual == "arg1_1 of dtype complex64"
    assert "view_as_real" in cause.fix


def test_a_dtype_with_code_hits():
    assert len(dtype_report(torch.randn(2, 8, dtype=torch.float64)).hits.hits) == 1


def test_such_a_dtype_within_the_pattern_is_no_obstacle():
    """Near miss: the matcher passes by nodes as the end of a match only."""
    scale = torch.randn(2, 8, dtype=torch.complex64)
    report = dtype_report(scale, lambda x, s: torch.view_as_real(torch.mul(x.sin(), s)).sum(-1).cos())
    assert len(report.hits.hits) == 1


def test_other_differences_are_listed_beside_the_dtype():
    scale = torch.randn(2, 8, dtype=torch.complex64)
    capture = capture_of(model_of(lambda _, x, s: torch.mul(x.sin() * 2.0, s)), X, scale)
    search = lambda x, s: torch.mul(x.sin() * 3.0, s)  # noqa: E731
    report = explained(capture, pattern_of(search, search, (X, scale)))
    assert causes(report) == [("unsupported_dtype", "mul_1"), ("scalar_literal", "mul")]


def two_outputs(x, y, scale):
    h = x + y
    return h.sin() * scale, h


def cyclic(_, x, y):
    h = x + y
    side = torch.tanh(h)
    return h.sin() * side.amax(), h + side


def late(_, x, y, s):
    h = x + y
    side = torch.tanh(h)
    return h.sin() * s.exp().amax(), h + side


def joined(x, y, scale):
    """As one fused op: every output comes from every argument."""
    h = y + x
    both = torch.stack([scale * h.sin(), h])
    return both[0], both[1]


SUM_INPUTS = (X, X + 1, torch.tensor(1.0))


def test_an_argument_computed_from_an_output_would_make_a_cycle():
    capture = capture_of(model_of(cyclic), X, X + 1)
    report = explained(capture, pattern_of(two_outputs, joined, SUM_INPUTS))
    assert (len(report.hits.hits), report.hits.refused[0].cause) == (0, "cycle")
    ((cause,),) = [item.causes for item in report.missed]
    assert (cause.type, cause.pattern_node, cause.graph_node) == ("cycle", "scale_1", "amax")
    assert "amax" in cause.actual
    assert "computed from add " in cause.actual


def test_a_replacement_that_needs_a_later_place_is_rewritten_and_sorted():
    inputs = (X, X + 1, torch.randn(3))
    capture = capture_of(model_of(late), *inputs)
    matching = match_groups(
        capture, {"trial": [pattern_of(two_outputs, joined, SUM_INPUTS)]}, "before-freezing"
    )
    assert [match.status for match in matching.matches] == ["hit"]
    module = matching.rewritten[0].module
    module.graph.lint()
    for got, wanted in zip(module(*inputs), late(None, *inputs), strict=True):
        torch.testing.assert_close(got, wanted)


def test_a_replacement_whose_outputs_do_not_share_the_argument_makes_no_cycle():
    """Near miss: the dependent argument is an input of the other output only."""
    inputs = (X, X + 1)
    capture = capture_of(model_of(cyclic), *inputs)

    def apart(x, y, scale):
        return (x + y).sin() * scale, torch.add(y, x)

    matching = match_groups(
        capture, {"trial": [pattern_of(two_outputs, apart, SUM_INPUTS)]}, "before-freezing"
    )
    assert [match.status for match in matching.matches] == ["hit"]
    for got, wanted in zip(matching.rewritten[0].module(*inputs), cyclic(None, *inputs), strict=True):
        torch.testing.assert_close(got, wanted)


def softsign(x):
    return x / (x.abs() + 1.0)


def softsign_by_sigmoid(x):
    """What a replacement might insert: ops that a later group searches for."""
    return torch.sigmoid(x).exp() * 1.5


def exponent(x):
    return torch.sigmoid(x).exp()


def exponent_again(x):
    return torch.exp(torch.sigmoid(x) * 1.0)


def first_and_second(written):
    first = [pattern_of(softsign, softsign_by_sigmoid, (X,), "FirstPattern")]
    capture = capture_of(model_of(lambda _, x: written(x)), X)
    return explained(capture, pattern_of(exponent, exponent_again, (X,)), first=first)


def test_nodes_that_a_replacement_inserted_are_no_site_of_a_later_group():
    report = first_and_second(softsign)
    assert report.hits.hits == ()
    ((cause,),) = [item.causes for item in report.missed]
    assert (cause.type, cause.graph_node) == ("consumed_earlier", "div")
    assert "was inserted by first, which replaced div" in cause.actual


def test_a_later_group_hits_the_graphs_own_nodes():
    report = first_and_second(lambda x: exponent(softsign(x)))
    assert [match.anchor for match in report.hits.hits] == ["exp"]
    assert len(report.missed) == 1


def test_a_later_group_may_read_what_a_replacement_inserted():
    """Near miss: the inserted node is an argument of the match only."""
    report = first_and_second(lambda x: torch.exp(torch.sigmoid(softsign(x))).cos())
    assert [(m.anchor, m.arguments) for m in report.hits.hits] == [("exp", {"x": {"node": "div"}})]


LIBRARY = torch.library.Library("silences", "FRAGMENT")
for schema in (
    "scaled_(Tensor(a!) out, Tensor x, float by) -> ()",
    "shifted_(Tensor(a!) out, Tensor x) -> ()",
):
    LIBRARY.define(schema)


def write(out, value):
    out.copy_(value)


LIBRARY.impl("scaled_", lambda out, x, by: write(out, x * by), "CPU")
LIBRARY.impl("shifted_", lambda out, x: write(out, x + 1), "CPU")
for op in ("scaled_", "shifted_"):
    torch.library.register_fake(f"silences::{op}", lambda *_: None, lib=LIBRARY)
SILENCES = torch.ops.silences


def scaled_and_shifted(x):
    scaled = torch.empty_like(x)
    SILENCES.scaled_(scaled, x, 2.0)
    shifted = torch.empty_like(x)
    SILENCES.shifted_(shifted, scaled)
    return shifted


def as_one(x):
    return x * 2.0 + 1


def functional_v1(x, a, b, by=2.0):
    scaled = auto_functionalized(SILENCES.scaled_.default, out=a, x=x, by=by)[1]
    return auto_functionalized(SILENCES.shifted_.default, out=b, x=scaled)[1]


def functional_v2(x, a, b):
    scaled = auto_functionalized_v2(SILENCES.scaled_.default, x=x, by=2.0, _out_base_index=0, _all_bases=[a])[
        1
    ]
    return auto_functionalized_v2(SILENCES.shifted_.default, x=scaled, _out_base_index=0, _all_bases=[b])[1]


def functional_report(search):
    capture = capture_of(model_of(lambda _, x: scaled_and_shifted(x)), X)
    return explained(capture, pattern_of(search, lambda x, a, b: as_one(x), (X, X, X)))


def test_the_other_functional_form_of_a_mutating_op_is_named_with_its_edit():
    report = functional_report(lambda x, a, b: functional_v1(x, a, b))
    (miss,) = report.missed
    assert causes(report) == [
        ("higher_order_form", "auto_functionalized_v2_1"),
        ("higher_order_form", "auto_functionalized_v2"),
    ]
    assert (miss.causes[1].expected, miss.causes[1].actual) == (
        "auto_functionalized",
        "auto_functionalized_v2",
    )
    assert miss.causes[1].edit == (
        "- auto_functionalized = auto_functionalized(silences.scaled_.default, out=a_1, x=x_1, by=2.0)\n"
        "+ auto_functionalized = auto_functionalized_v2(silences.scaled_.default, x=x_1, by=2.0, _out_base_index=0,"
        " _all_bases=[a_1])"
    )


def test_the_graphs_own_form_hits_and_so_does_the_call_itself():
    assert len(functional_report(functional_v2).hits.hits) == 1
    capture = capture_of(model_of(lambda _, x: scaled_and_shifted(x)), X)
    assert len(explained(capture, pattern_of(scaled_and_shifted, as_one, (X,))).hits.hits) == 1


def test_another_literal_in_the_other_form_is_named_too():
    """Near miss: two differences at one call."""
    report = functional_report(lambda x, a, b: functional_v1(x, a, b, 3.0))
    assert ("scalar_literal", "auto_functionalized_v2") in causes(report)
    assert ("higher_order_form", "auto_functionalized_v2") in causes(report)


WEIGHT = torch.rand(8) + 0.5


def norm(x, weight):
    mean = x.pow(2).mean(-1, keepdim=True)
    return x * torch.rsqrt(mean + 1e-6) * weight


def broken_norm(module, x):
    mean = x.pow(2).mean(-1, keepdim=True)
    torch._dynamo.graph_break()
    return x * torch.rsqrt(mean + 1e-6) * module.weight


def late_broken_norm(module, x):
    scaled = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    torch._dynamo.graph_break()
    return scaled * module.weight


def broken_before(module, x):
    x = x.cos()
    torch._dynamo.graph_break()
    return norm(x, module.weight)


def norm_report(written, search=norm, sites=None):
    capture = capture_of(model_of(written, weight=WEIGHT), X)
    return explained(capture, pattern_of(search, search, (X, WEIGHT)), sites=sites)


@pytest.mark.parametrize("written", [broken_norm, late_broken_norm])
def test_a_break_within_a_site_is_named_with_its_line(written):
    report = norm_report(written)
    (item,) = report.missed
    (cause,) = item.causes
    line = written.__code__.co_firstlineno + 2
    assert cause.type == "graph_break"
    assert f"test_silences.py:{line}" in cause.actual
    assert "graph_break()" in cause.actual


def test_a_break_before_the_site_leaves_a_hit():
    report = norm_report(broken_before)
    assert (len(report.hits.hits), report.missed) == (1, ())


def test_a_break_before_a_site_that_misses_is_not_its_cause():
    """Near miss: another literal, in a model with a break elsewhere."""
    report = norm_report(
        broken_before, lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w
    )
    assert [cause.type for item in report.missed for cause in item.causes] == ["scalar_literal"]


class CutRMSNorm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(WEIGHT.clone())

    def forward(self, x):
        return broken_norm(self, x)


def test_a_counted_site_that_is_cut_keeps_its_module():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), CutRMSNorm(), torch.nn.Linear(8, 8))
    subject = Subject(model=model, inputs=(X,), name="own")
    group = [pattern_of(norm, lambda x, weight: torch.ops.npu.npu_rms_norm(x, weight, 1e-6)[0], (X, WEIGHT))]
    matching = match_groups(capture_graphs(subject), {"rms_norm": group}, "before-freezing")
    report = explain_pattern(matching, "rms_norm", expected_counts(subject))
    assert [(item.module, item.causes[0].type) for item in report.missed] == [("1", "graph_break")]


ENTRY = """import torch
from torch._inductor.pattern_matcher import fwd_only, register_replacement


def gate(x, w):
    return {search}


def fused_gate(x, w):
    return torch.ops.npu.npu_swiglu.default(torch.cat([x, w], -1), -1)


def register_trial_graph_entries(pattern_pass):
    examples = [torch.empty(2, 4), torch.empty(2, 4)]
    register_replacement(gate, fused_gate, examples, fwd_only, pattern_pass{check})
"""


def entry_report(folder, search, check=""):
    path = folder / "trial_pattern.py"
    path.write_text(ENTRY.format(search=search, check=check))
    capture = capture_of(model_of(lambda _, x, w: torch.tanh(x) * w * 2.0), X, X + 1)
    (report,) = explain_capture(capture, path)
    return report


def test_an_entry_through_register_replacement_hits(tmp_path):
    (hit,) = entry_report(tmp_path, "torch.tanh(x) * w * 2.0").hits.hits
    assert (hit.variant, hit.anchor) == ("gate", "mul_1")


def test_a_literal_of_such_an_entry_is_compared_at_the_site(tmp_path):
    report = entry_report(tmp_path, "torch.tanh(x) * w * 3.0")
    assert report.hits.matches == ()
    ((cause,),) = [item.causes for item in report.missed]
    assert (cause.type, cause.graph_node, cause.expected, cause.actual) == (
        "scalar_literal",
        "mul_1",
        "3.0",
        "2.0",
    )
    assert (
        cause.edit
        == "- mul_tensor_1 = aten.mul.Tensor(mul_tensor, 3.0)\n+ mul_tensor_1 = aten.mul.Tensor(mul_tensor, 2.0)"
    )


def test_the_check_of_such_an_entry_refuses_by_itself(tmp_path):
    """Near miss: structure and literals fit, and the file's own check says no."""
    report = entry_report(tmp_path, "torch.tanh(x) * w * 2.0", ", extra_check=lambda match: False")
    assert [match.cause for match in report.hits.refused] == ["extra_check"]
    assert causes(report) == [("extra_check", "mul_1")]


def test_a_scalar_literal_meets_a_tensor_and_a_tensor_meets_a_literal():
    scaled = lambda x: x.sin() * 2.0  # noqa: E731
    by = lambda x, s: x.sin() * s  # noqa: E731
    against_tensor = explained(
        capture_of(model_of(lambda _, x, s: by(x, s)), X, X + 1), pattern_of(scaled, scaled, (X,))
    )
    ((cause,),) = [item.causes for item in against_tensor.missed]
    assert (cause.type, cause.expected, cause.actual) == ("scalar_literal", "2.0", "tensor arg1_1")
    capture = capture_of(model_of(lambda _, x: scaled(x)), X)
    assert explained(capture, pattern_of(by, by, (X, X))).hits.hits[0].arguments["s"] == 2.0
    needs_tensor = explained(capture, pattern_of(by, lambda x, s: x.sin() * s.clone(), (X, X)))
    ((cause,),) = [item.causes for item in needs_tensor.missed]
    assert (cause.type, cause.graph_node) == ("extra_check", "mul")
    assert "'float' object has no attribute 'clone'" in cause.actual


def complex_rotation(x, angle):
    halves = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(halves * torch.polar(torch.ones_like(angle), angle)).flatten(-2).type_as(x)


def real_rotation(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class Turned(torch.nn.Module):
    """A linear, a rotation by `turn`, and a linear."""

    def __init__(self, turn):
        super().__init__()
        self.before, self.turn, self.behind = torch.nn.Linear(8, 8), turn, torch.nn.Linear(8, 8)

    def forward(self, x, *tables):
        return self.behind(self.turn(self.before(x), *tables))


def rotation_report(turn, *tables):
    matching = match_groups(
        capture_of(Turned(model_of(turn)), X, *tables),
        {"rope": [pattern_of(real_rotation, real_rotation, (X, X, X))]},
        "before-freezing",
    )
    return matching, explain_missing(matching, "rope", ["turn.own"])


def test_a_complex_rotation_is_the_site_of_a_pattern_of_real_halves():
    matching, (item,) = rotation_report(lambda _, x, angle: complex_rotation(x, angle), torch.randn(2, 4))
    assert (matching.matches, item.anchor, item.module) == ((), "view_as_real", "turn.own")
    (cause,) = item.causes
    assert (cause.type, cause.edit) == ("decomposition", None)
    assert "aten.view_as_complex" in cause.actual


def test_a_real_rotation_hits():
    matching, _ = rotation_report(lambda _, x, *tables: real_rotation(x, *tables), X, X)
    assert [match.module for match in matching.matches] == ["turn.own"]


def test_a_complex_product_that_is_no_rotation_of_halves_is_laid_on_nothing():
    """Near miss: complex numbers, but nothing was made of real halves."""
    _, (item,) = rotation_report(lambda _, x: torch.view_as_real(torch.fft.fft(x) * 2.0).sum(-1))
    assert (item.near, item.anchor == "view_as_real") == (False, False)


def test_a_site_of_a_view_names_what_torch_inserts():
    """torch.nn.RMSNorm of a view ends in a clone; the kit's own norm pattern without it is one node away."""
    model = torch.nn.Sequential(
        model_of(lambda _, x: x.view(1, 4, 2, 16).transpose(1, 2)), torch.nn.RMSNorm(16, eps=1e-6)
    )
    capture = capture_of(model.bfloat16(), torch.randn(1, 4, 32).bfloat16())
    group = [
        factory.create(dtype) for dtype in (torch.bfloat16, torch.float32) for factory in (RmsNormPattern,)
    ]
    matching = match_groups(capture, {"rms_norm": group}, "before-freezing")
    (item,) = explain_missing(matching, "rms_norm", ["1"])
    assert (item.pattern, [(c.type, c.graph_node) for c in item.causes]) == (
        "RmsNormPattern_bfloat16",
        [("missing_node", "clone")],
    )


def hard_gate(x, y):
    return F.hardswish(x) * y


def soft_gate(x, y):
    return F.silu(x) * y


def short_report(written, search):
    capture = capture_of(model_of(lambda _, *x: written(*x)), X, X + 1)
    return explained(capture, pattern_of(search, search, (X, X + 1)))


def test_a_short_pattern_with_half_of_its_ops_is_a_near_miss():
    assert causes(short_report(soft_gate, hard_gate)) == [("missing_node", "silu")]


def test_a_short_pattern_whose_ops_are_there_hits():
    assert len(short_report(soft_gate, soft_gate).hits.hits) == 1


def test_a_product_alone_is_no_near_miss_of_a_gate():
    """Near miss of a near miss: the one common op stands in every model."""
    report = short_report(lambda x, y: (x + y) * y, hard_gate)
    assert (report.missed, report.to_dict()["answer"]) == ((), "no_such_primitive")


def test_a_match_elsewhere_in_the_module_is_no_matter_of_the_window():
    """The same pattern takes another line of this module in every window."""

    def twice(_, x, y):
        first = F.silu(x) * y
        return y * F.silu(first)

    matching = match_groups(
        capture_graphs(Subject(model=model_of(twice), inputs=(X, X + 1), name="own"), freezing=True),
        {"trial": [pattern_of(soft_gate, soft_gate, (X, X))]},
        "before-freezing",
    )
    report = explain_pattern(matching, "trial", {})
    assert [cause.type for item in report.missed for cause in item.causes] == ["argument_order"]
