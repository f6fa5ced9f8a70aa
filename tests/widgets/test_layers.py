"""The layered layout: every operand above its user, no box on another, no line through a box."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionkit.widgets.layers import depths, lay_out, spread

SIZES = st.tuples(st.integers(40, 220), st.integers(20, 80))


@st.composite
def graphs(draw):
    """Node -> operands in topological order, with up to 25 nodes, and a size for each."""
    names = [f"n{index}" for index in range(draw(st.integers(1, 25)))]
    operands = {
        name: tuple(draw(st.lists(st.sampled_from(names[:index]), max_size=3))) if index else ()
        for index, name in enumerate(names)
    }
    return operands, {name: draw(SIZES) for name in names}


def test_a_chain_stands_upright_and_a_skip_goes_beside_it():
    operands = {"x": (), "a": ("x",), "b": ("a",), "c": ("b",), "d": ("c", "x")}
    layout = lay_out(operands, dict.fromkeys(operands, (60, 30)))
    assert {layout.boxes[name][0] for name in "abc"} == {layout.boxes["a"][0]}
    tops = [layout.boxes[name][1] for name in "xabcd"]
    assert tops == sorted(set(tops))
    passing = layout.lines["x", "d"][1:-1]
    assert {x for x, _ in passing[1:]} == {passing[-1][0]}
    assert not any(layout.boxes["a"][0] <= x <= layout.boxes["a"][0] + 60 for x, _ in passing[1:])


def test_operands_enter_in_their_order():
    operands = {"a": (), "b": (), "ab": ("a", "b"), "ba": ("b", "a")}
    lines = lay_out(operands, dict.fromkeys(operands, (60, 30))).lines
    assert lines["a", "ab"][-1][0] < lines["b", "ab"][-1][0]
    assert lines["b", "ba"][-1][0] < lines["a", "ba"][-1][0]


def test_an_input_stands_right_above_its_first_user():
    assert depths({"x": (), "a": ("x",), "b": ("a",), "w": (), "c": ("b", "w")}) == {
        "x": 0,
        "a": 1,
        "b": 2,
        "w": 2,
        "c": 3,
    }


def test_unknown_operands_are_passed_over_and_nothing_is_an_empty_picture():
    assert list(lay_out({"a": ("elsewhere",)}, {"a": (60, 30)}).lines) == []
    empty = lay_out({}, {})
    assert (dict(empty.boxes), dict(empty.lines)) == ({}, {})


@given(graphs())
def test_boxes_lie_apart_and_inside_and_lines_pass_beside_them(graph):
    operands, sizes = graph
    layout = lay_out(operands, sizes)
    boxes = {n: (x, y, x + sizes[n][0], y + sizes[n][1]) for n, (x, y) in layout.boxes.items()}
    for x, y, right, bottom in boxes.values():
        assert x >= 0
        assert y >= 0
        assert right <= layout.width + 1e-6
        assert bottom <= layout.height + 1e-6
    for (ax, ay, ar, ab), (bx, by, br, bb) in itertools.combinations(boxes.values(), 2):
        assert ar < bx or br < ax or ab < by or bb < ay
    for (operand, user), points in layout.lines.items():
        assert points[0][1] == pytest.approx(boxes[operand][3])
        assert points[-1][1] == pytest.approx(boxes[user][1])
        for (x1, y1), (x2, y2) in itertools.pairwise(points):
            assert y1 <= y2
            if x1 == x2:
                crossed = [
                    n
                    for n, (x, y, right, bottom) in boxes.items()
                    if n not in (operand, user) and x < x1 < right and y < y2 and y1 < bottom
                ]
                assert crossed == []


@given(graphs())
def test_the_same_graph_gives_the_same_picture(graph):
    assert lay_out(*graph) == lay_out(*graph)


@given(st.lists(st.floats(-500, 500), min_size=1, max_size=8), st.floats(1, 80))
def test_spread_keeps_distances_and_leaves_alone_what_keeps_them(wanted, gap):
    order = list(range(len(wanted)))
    apart = dict.fromkeys(itertools.pairwise(order), gap)
    placed = spread(wanted, order, apart)
    assert all(b - a >= gap - 1e-6 for a, b in itertools.pairwise(placed))
    assert spread(placed, order, apart) == pytest.approx(placed)
