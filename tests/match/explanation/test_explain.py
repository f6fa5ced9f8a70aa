"""Rows of known misses on tiny FLUX, one change at a time, and what is named for each."""

import pytest
import torch
import torch.nn.functional as F
from norm_chains import EPS, A, chain, matching, pattern_class
from shared_models import compiled, counts_of, small_subject

from fusionkit.capture.capturing import capture_graphs
from fusionkit.capture.graphs import copy_graph_module
from fusionkit.match.explanation.missing import explain_pattern
from fusionkit.match.matching import Matching, match_groups
from fusionkit.passes.match_pass import PatternMatchPass
from fusionkit.patterns.rms_norm_pattern import HandWrittenRmsNormPattern, RmsNormPattern

SITE = "transformer_blocks.0.attn.norm_q"


HITS = {
    "as in the graph": chain(),
    "F.rms_norm, traced like the model": lambda x, weight: F.rms_norm(x, (16,), weight, EPS),
}
MISSES = {
    "eps": (chain(eps=1e-6), [("scalar_literal", "add", "add_6", "1e-06", "9.999999974752427e-07")]),
    "dim": (chain(dim=[-1]), [("dim_literal", "mean", "mean", "[-1]", "[3]")]),
    "overload": (
        chain(add=A.add.Tensor),
        [("overload", "add", "add_6", "aten.add.Tensor", "aten.add.Scalar")],
    ),
    "order": (
        chain(swap=True),
        [
            (
                "argument_order",
                "mul",
                "mul_16",
                "(aten.rsqrt.default, aten._to_copy.default(float32))",
                "(aten._to_copy.default(float32), aten.rsqrt.default)",
            )
        ],
    ),
    "power": (chain(power=3), [("scalar_literal", "pow_1", "pow_4", "3", "2")]),
    "cast before the gain": (
        chain(before_gain=True),
        [("dtype_path", "_to_copy_1", "mul_16", "aten._to_copy.default(bfloat16)", "no cast")],
    ),
    "prims cast": (
        lambda x, weight: chain(cast=False)(torch.ops.prims.convert_element_type(x, torch.float32), weight),
        [
            (
                "decomposition",
                "convert_element_type",
                "_to_copy_11",
                "prims.convert_element_type.default",
                "aten._to_copy.default",
            )
        ],
    ),
    "a node more": (
        lambda x, weight: chain()(x, torch.sigmoid(weight)),
        [("missing_node", "sigmoid", "arg39_1", "aten.sigmoid.default", "placeholder arg39_1")],
    ),
}


@pytest.mark.parametrize("fn", HITS.values(), ids=HITS)
def test_hits_get_no_cause(fn):
    report = explain_pattern(matching(fn), "rms_norm", counts_of("flux"))
    assert len(report.hits.hits) == 12
    assert report.missed == ()
    assert {site["status"] for site in report.to_dict()["sites"]} == {"hit"}


@pytest.mark.parametrize(("fn", "wanted"), MISSES.values(), ids=MISSES)
def test_misses_are_named_to_the_node(fn, wanted):
    report = explain_pattern(matching(fn), "rms_norm", counts_of("flux"))
    assert len(report.hits.hits) == 0
    assert [item.module for item in report.missed] == [s.module for s in counts_of("flux")["rms_norm"].sites]
    first = next(item for item in report.missed if item.module == SITE)
    told = [(c.type, c.pattern_node, c.graph_node, c.expected, c.actual) for c in first.causes]
    assert told == wanted


def test_without_the_leading_cast_the_op_would_get_float32_with_a_bfloat16_gain():
    """torch's matcher takes all twelve; the op's documented limit refuses each, and that is the pattern's fault."""
    report = explain_pattern(matching(chain(cast=False)), "rms_norm", counts_of("flux"))
    assert len(report.hits.refused) == 12
    assert len(report.missed) == 12
    for item in report.missed:
        assert item.causes[0].type == "extra_check"
        assert "got bfloat16 with float32 input" in item.causes[0].actual


def test_every_difference_is_listed_not_only_the_first():
    report = explain_pattern(matching(chain(eps=1e-6, dim=[-1], swap=True)), "rms_norm", counts_of("flux"))
    for item in report.missed:
        assert sorted(cause.type for cause in item.causes) == [
            "argument_order",
            "dim_literal",
            "scalar_literal",
        ]


def test_sources_on_both_sides():
    report = explain_pattern(matching(chain(eps=1e-6)), "rms_norm", counts_of("flux"))
    cause = report.missed[0].causes[0]
    assert "norm_chains.py:" in cause.pattern_source
    assert cause.graph_source.startswith("diffusers/")
    assert "scalars()" in cause.fix


def test_the_two_forms_of_the_norm_are_told_apart():
    """A hand-written norm on FLUX, and torch.nn.RMSNorm's chain on Llama: each names what the other has."""
    report = explain_pattern(matching(chain(), "llama"), "rms_norm", counts_of("llama"))
    assert len(report.missed) == 5
    for item in report.missed:
        assert {"overload", "dim_literal", "scalar_literal"} <= {cause.type for cause in item.causes}


def test_a_primitive_that_is_not_there():
    fused = compiled("llama")
    report = explain_pattern(
        Matching(fused.capture(), "before-freezing", {"gelu": fused_group("gelu")}, ()), "gelu", {}
    )
    assert report.to_dict()["answer"] == "no_such_primitive"


def test_where_most_ops_are_absent_nothing_is_near_and_no_edit_is_named():
    """A pattern of other ops whose mean alone stands at the norm's sites, with another literal."""

    def other(x, weight):
        return torch.sigmoid(torch.mean(torch.cos(torch.sin(x)), [-1], True)).tanh() * weight.exp()

    report = explain_pattern(matching(other), "rms_norm", counts_of("flux"))
    assert len(report.missed) == 12
    for item in report.missed:
        assert item.causes
        assert not item.near
        assert not any(cause.edit for cause in item.causes)
    near = explain_pattern(matching(chain(eps=1e-6)), "rms_norm", counts_of("flux")).missed
    assert all(item.near and item.causes[0].edit for item in near)


def test_whatever_a_pattern_raises_at_a_site_leaves_the_explanation_standing():
    """An exception class of the file's own, raised at every shape but the example's."""

    class NotMineError(Exception):
        pass

    def picky(x, weight):
        if x.shape[-1] == 16 and x.shape[1] > 4:
            raise NotMineError("another shape")
        return chain(swap=True)(x, weight)

    report = explain_pattern(matching(picky), "rms_norm", counts_of("flux"))
    assert len(report.missed) == 12
    assert {cause.type for item in report.missed for cause in item.causes} >= {"argument_order"}


def fused_group(name):
    from shared_models import ALL

    from fusionkit.passes.compiled import pattern_groups

    return pattern_groups(ALL)[name]


def taken_first(first):
    group = {"first": [first], "again": [pattern_class(chain())]}
    plain = compiled("flux", plain=True)
    matches = PatternMatchPass(group, {}).apply(copy_graph_module(plain.before[0].module))
    found = Matching(plain.capture(), "before-freezing", group, matches)
    return explain_pattern(found, "again", {"again": counts_of("flux")["rms_norm"]})


def test_nodes_taken_by_another_pattern_are_told():
    class Scale(pattern_class(None)):
        pattern = staticmethod(lambda x: torch.rsqrt(x))
        replacement = staticmethod(lambda x: torch.reciprocal(torch.sqrt(x)))
        inputs = staticmethod(lambda: [torch.empty(2, 4, 8, 1, device="meta")])

    report = taken_first(Scale)
    assert {cause.type for item in report.missed for cause in item.causes} == {"consumed_earlier"}
    assert "taken by first" in report.missed[0].causes[0].actual


def test_nodes_taken_by_an_equal_pattern_are_told_as_a_duplicate():
    report = taken_first(pattern_class(chain()))
    assert {cause.type for item in report.missed for cause in item.causes} == {"duplicate"}
    assert report.missed[0].causes[0].actual == "equal to first (Trial)"


def test_both_forms_in_one_model_are_told_apart():
    """A torch.nn.RMSNorm and a hand-written norm: each form's pattern hits its own and names what the other has."""
    capture = capture_graphs(small_subject())
    told = {}
    for factory in (RmsNormPattern, HandWrittenRmsNormPattern):
        groups = {"rms_norm": [factory.create(torch.bfloat16)]}
        report = explain_pattern(match_groups(capture, groups, "before-freezing"), "rms_norm", {})
        (hit,), (miss,) = report.hits.hits, report.missed
        told[factory.__name__] = (hit.module, miss.module, [(c.type, c.graph_node) for c in miss.causes])
    assert told == {
        "RmsNormPattern": (
            "norm",
            "",
            [
                ("dtype_path", "mul_3"),
                ("argument_order", "mul_3"),
                ("dtype_path", "_to_copy_3"),
                ("overload", "add_1"),
                ("dim_literal", "mean_1"),
            ],
        ),
        "HandWrittenRmsNormPattern": (
            "",
            "norm",
            [
                ("argument_order", "mul_1"),
                ("dtype_path", "mul"),
                ("overload", "add"),
                ("dim_literal", "mean"),
            ],
        ),
    }
