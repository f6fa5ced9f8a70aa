"""The drawing: names, calls and notes of every node, marked in words; whole, escaped, nothing cut off."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from fusionkit.widgets.drawing import MOST_NODES, DrawnNode, graph_svg

SVG = "{http://www.w3.org/2000/svg}"
NODES = [
    DrawnNode("view_25", "view", (), "input", ("input x",)),
    DrawnNode("mean", "mean.dim", ("view_25",), notes=("\N{NOT EQUAL TO} 1 dim_literal",), differs=True),
    DrawnNode("mul", "mul.Tensor", ("view_25", "mean"), notes=("output",)),
]


def drawn(nodes=NODES, title="a site") -> ET.Element:
    return ET.fromstring(graph_svg(nodes, title))


def texts(root: ET.Element) -> list[str]:
    return [element.text for element in root.iter(f"{SVG}text")]


def test_every_node_is_named_with_its_call_and_what_is_said_of_it():
    assert texts(drawn()) == [
        "a site",
        "view_25", "view", "input x",
        "mean", "mean.dim", "\N{NOT EQUAL TO} 1 dim_literal",
        "mul", "mul.Tensor", "output",
    ]  # fmt: skip


def test_one_line_and_one_head_per_edge():
    assert sum(1 for _ in drawn().iter(f"{SVG}path")) == 2 * 3


def test_what_differs_has_a_heavy_frame_and_inputs_a_dashed_one():
    boxes = list(drawn().iter(f"{SVG}rect"))
    assert [box.get("stroke-width") for box in boxes] == [None, "2.5", None]
    assert [box.get("stroke-dasharray") is not None for box in boxes] == [True, False, False]


def test_the_drawing_is_told_in_words():
    root = drawn()
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title").text == "a site"
    words = root.find(f"{SVG}desc").text
    assert "mul: mul.Tensor of view_25, mean (output)" in words
    assert "mean: mean.dim of view_25 (\N{NOT EQUAL TO} 1 dim_literal)" in words


def test_every_text_fits_its_box_and_the_picture():
    long = DrawnNode(
        "transformer_blocks_0_attn_norm_added_q_weight" * 3, "op" * 60, ("mul",), notes=("n " * 60,)
    )
    root = drawn([*NODES, long], title="t" * 300)
    width, height = (float(number) for number in root.get("viewBox").split()[2:])
    for group in root.iter(f"{SVG}g"):
        box = group.find(f"{SVG}rect")
        x, y, w, h = (float(box.get(name)) for name in ("x", "y", "width", "height"))
        assert x >= 0
        assert x + w <= width + 1
        assert y + h <= height + 1
        for text in group.iter(f"{SVG}text"):
            assert len(text.text) * 6.7 <= w
            assert y < float(text.get("y")) < y + h
    assert len(texts(root)[0]) * 6.7 <= width
    full = [title.text for title in root.iter(f"{SVG}title")]
    assert any(long.name in text for text in full)


def test_hostile_names_stay_text():
    hostile = "</text><script>alert(1)</script>\"'&"
    root = drawn([DrawnNode(hostile, hostile, (hostile,), "input", (hostile,))], title=hostile)
    assert not list(root.iter(f"{SVG}script"))
    assert hostile in root.find(f"{SVG}desc").text


def test_nothing_and_too_much_are_said_and_not_drawn():
    assert "nothing here" in graph_svg([], "a site", empty="nothing here")
    many = [DrawnNode(f"n{index}", "op") for index in range(MOST_NODES + 1)]
    markup = graph_svg(many, "a site")
    assert "<svg" not in markup
    assert f"{MOST_NODES + 1} nodes are too many to draw" in markup
