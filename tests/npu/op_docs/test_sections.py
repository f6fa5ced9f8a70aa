"""Sections of a docstring: what opens one, what does not, and nothing of the text is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionkit.npu.op_docs.sections import HEADINGS, split_sections


def kinds(text: str) -> dict[str, str]:
    return {section.kind: section.text for section in split_sections(text)}


def test_chinese_headings_with_and_without_colon_or_text():
    text = (
        "torch_npu.f(x) -> Tensor\n功能描述\n做事。\n\n参数说明：\nx：张量\n输出说明: 一个张量\n"
        "约束说明：\n无\n支持的型号:\nAtlas A2\n支持的PyTorch版本\nPyTorch 2.1\n示例\n>>> f(x)"
    )
    assert kinds(text) == {
        "signature": "torch_npu.f(x) -> Tensor",
        "description": "做事。",
        "parameters": "x：张量",
        "returns": "一个张量",
        "constraints": "无",
        "products": "Atlas A2",
        "versions": "PyTorch 2.1",
        "examples": ">>> f(x)",
    }


def test_english_docstrings():
    text = (
        "Rolls.\n\nArgs:\n    x: a tensor\nReturns:\n    a tensor\nExamples::\n    roll(x)\nNote:\n    slow"
    )
    assert kinds(text) == {
        "description": "Rolls.",
        "parameters": "    x: a tensor",
        "returns": "    a tensor",
        "remarks": "    slow",
        "examples": "    roll(x)",
    }


def test_before_the_first_heading_calls_are_the_signature_and_the_rest_the_description():
    assert kinds("按元素计算。\ntorch_npu. f(Tensor x)\nnpu_f(x)\n说明\n无") == {
        "signature": "torch_npu. f(Tensor x)\nnpu_f(x)",
        "description": "按元素计算。",
        "remarks": "无",
    }


@pytest.mark.parametrize(
    "line", ["说明: 保留该值", "输出float16", "参数 x 为张量", "Return the value", "示例中的 x", ""]
)
def test_words_of_sentences_open_no_section(line):
    assert kinds(f"参数说明\nx\n{line}\ny") == {"parameters": f"x\n{line}\ny"}


def test_headings_of_markdown_and_with_a_remark_in_brackets():
    assert kinds("## 参数说明\nx\n#返回值说明:\ny\n约束说明（包括类型）\nz") == {
        "parameters": "x",
        "returns": "y",
        "constraints": "z",
    }


def test_behind_the_calls_of_a_signature_stand_the_parameters():
    text = "接口原型:\ntorch_npu.f(\n    Tensor x,\n) -> Tensor\n\ntorch_npu.f(y)\n\n-   x：张量\n输出说明\nz"
    assert kinds(text) == {
        "signature": "torch_npu.f(\n    Tensor x,\n) -> Tensor\n\ntorch_npu.f(y)",
        "parameters": "-   x：张量",
        "returns": "z",
    }


def test_two_headings_of_a_kind_are_joined_in_order():
    assert kinds("约束说明\na\n输出说明\nr\n输入约束\nb") == {"returns": "r", "constraints": "a\nb"}


def test_empty_sections_are_none():
    assert kinds("") == {}
    assert kinds("功能描述\n\n参数说明\n\n") == {}


def test_every_kind_has_a_heading_in_both_languages():
    assert all(set(told) == {"en", "zh"} and all(told.values()) for told in HEADINGS.values())


@given(
    st.lists(
        st.sampled_from(["参数说明", "输出说明：", "约束说明", "示例", "x", "y z", "", "  - a: b", "说明: c"])
    )
)
def test_no_line_is_lost_or_made_up(lines):
    headings = {"参数说明", "输出说明：", "约束说明", "示例"}
    told = sorted(line for line in lines if line and line not in headings)
    kept = [line for section in split_sections("\n".join(lines)) for line in section.text.split("\n")]
    assert sorted(line for line in kept if line) == told
