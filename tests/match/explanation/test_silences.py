"""Cases that torch's matcher passes by, or takes wrongly, without a word: each has a cause, a hit and a near miss."""

import pytest
import torch
import torch.nn.functional as F
from own_patterns import capture_of, causes, explained, model_of, pattern_of

from fusionkit.match.matching import match_groups

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
