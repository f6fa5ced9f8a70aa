"""Calls taken apart, and which of their fields are marked."""

from __future__ import annotations

from dataclasses import replace

import pytest
from missed_sites import CAST, DIM, ORDER, ROWS

from fusionkit.match.explanation.causes import Cause
from fusionkit.match.explanation.rows import AlignedRow
from fusionkit.widgets.call_fields import OP, call_html, differing_fields, read_call

NAMES = {"x": "view_25", "mean": "mean_7", "mul": "mul_16"}
NONE = frozenset()


def cause(kind: str, expected: str = "", actual: str = "") -> Cause:
    return Cause(kind, "p", "g", expected, actual, "", "", "", None)


def row(pattern: str, graph: str, state: str = "differs") -> AlignedRow:
    return AlignedRow(state, "p", pattern, "", "g", graph, "")


@pytest.mark.parametrize(
    ("text", "op", "fields"),
    [
        ("aten.mean.dim(pow_1, [-1], True)", "aten.mean.dim", ["pow_1", "[-1]", "True"]),
        ("aten.cat.default([a, b], -1)", "aten.cat.default", ["[a, b]", "-1"]),
        ("f(x, dtype=float32, layout=strided)", "f", ["x", "dtype=float32", "layout=strided"]),
        ("aten.rand.default()", "aten.rand.default", []),
    ],
)
def test_a_call_is_taken_apart_at_the_commas_outside_brackets(text, op, fields):
    call = read_call(text)
    assert call.op == op
    assert [field.shown for field in call.fields] == fields


def test_a_name_is_no_call():
    assert read_call("arg39_1").fields is None
    assert call_html("arg39_1") == "arg39_1"


def test_a_literal_is_marked_on_both_sides_and_operands_are_not():
    assert differing_fields(ROWS[1], [DIM], NAMES) == ({1}, {1})


def test_swapped_operands_are_marked():
    assert differing_fields(ROWS[3], [ORDER], NAMES) == ({0, 1}, {0, 1})


def test_an_operand_behind_a_node_that_only_the_graph_has_is_marked():
    swapped = replace(ROWS[3], graph_call="aten.mul.Tensor(to_copy_3, view_25)")
    assert differing_fields(swapped, [CAST], NAMES) == ({0}, {0})


def test_another_op_or_overload_marks_the_op_alone():
    found = differing_fields(
        row("aten.add.Tensor(x, 1e-06)", "aten.add.Scalar(view_25, 1)"), [cause("overload")], NAMES
    )
    assert found == ({OP}, {OP})


def test_a_keyword_that_one_side_lacks_is_marked_where_it_stands():
    lacking = cause("kwargs_structure", "memory_format=preserve_format", "absent")
    pair = row("f(x, memory_format=preserve_format)", "f(view_25, device=cpu)")
    assert differing_fields(pair, [lacking], NAMES) == ({1}, NONE)
    more = cause("kwargs_structure", "no alpha", "alpha=2")
    assert differing_fields(row("f(x, 1)", "f(view_25, 1, 2)"), [more], NAMES) == (NONE, {2})


def test_several_causes_mark_each_its_own():
    causes = [cause("dim_literal", "[-1]", "[3]"), cause("scalar_literal", "True", "False")]
    assert differing_fields(row("f(x, [-1], True, 5)", "f(view_25, [3], False, 6)"), causes, NAMES) == (
        {1, 2},
        {1, 2},
    )


def test_a_literal_that_happens_to_differ_elsewhere_in_the_call_is_not_marked():
    """A size that stands for any size differs too, and is no cause."""
    pair = row("f(x, 1e-06, 5)", "f(view_25, 1e-05, 1e-05)")
    assert differing_fields(pair, [cause("scalar_literal", "1e-06", "1e-05")], NAMES) == ({1}, {1})


def test_a_dtype_and_a_text_are_compared_as_they_are_shown():
    causes = [
        cause("dtype_path", "torch.float16", "torch.bfloat16"),
        cause("scalar_literal", "'none'", "'tanh'"),
    ]
    pair = row("f(x, dtype=float16, approximate=none)", "f(view_25, dtype=bfloat16, approximate=tanh)")
    assert differing_fields(pair, causes, NAMES) == ({1, 2}, {1, 2})


@pytest.mark.parametrize("state", ["same", "pattern only", "graph only"])
def test_only_a_row_that_differs_has_marks(state):
    assert differing_fields(row("f(x, 1)", "f(view_25, 2)", state), [], NAMES) == (NONE, NONE)


def test_users_from_outside_mark_nothing_in_the_call():
    assert differing_fields(row("f(x)", "f(view_25)"), [cause("extra_user")], NAMES) == (NONE, NONE)


def test_marked_fields_stand_in_mark_and_everything_is_escaped():
    markup = call_html("aten.f(<b>, 1e-06)", {1})
    assert "&lt;b&gt;" in markup
    assert markup.count("<mark") == 1
    assert "text-decoration:underline" in markup
    assert ">1e-06</mark>" in markup
    assert "<mark" in call_html("aten.f(x)", {OP}).partition("(")[0]


def test_a_small_number_is_not_broken_at_its_hyphen():
    for marked in (set(), {1}):
        assert "white-space:nowrap" in call_html("aten.f(x, 1e-06)", marked)
    assert "nowrap" not in call_html("aten.f(x, 12, [-1])")
