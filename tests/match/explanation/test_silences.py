"""Cases that torch's matcher passes by, or takes wrongly, without a word: each has a cause, a hit and a near miss."""

import pytest
import torch
import torch.nn.functional as F
from own_patterns import capture_of, causes, explained, model_of, pattern_of

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
