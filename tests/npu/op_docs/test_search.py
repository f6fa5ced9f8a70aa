"""Search: all words must be found, names before texts, Chinese too, and an excerpt that shows why."""

from __future__ import annotations

import pytest
from op_doc_wheels import make_doc_wheel

from fusionkit.npu.op_docs.index import read_index
from fusionkit.npu.op_docs.search import search_api


@pytest.fixture
def index(nothing_found, in_a_folder):
    return read_index(make_doc_wheel(in_a_folder))


def names(index, *words):
    return [hit.name for hit in search_api(index, words)]


def test_a_word_of_the_name_comes_before_a_part_of_it_and_that_before_text(index):
    found = names(index, "toy")
    assert set(found) == {"atb.npu_toy_cache", "npu_toy_scale", "contrib.toy_roll", "optim.ToyAdam"}
    assert found[-1] == "optim.ToyAdam"
    assert names(index, "factor") == ["npu_toy_scale"]


def test_all_words_in_any_case_and_order(index):
    assert names(index, "SCALE", "tensor") == ["npu_toy_scale"]
    assert names(index, "tensor scale") == ["npu_toy_scale"]
    assert names(index, "scale", "nowhere") == []
    assert names(index, " ") == []


def test_chinese_words_and_the_kits_notes(index):
    assert names(index, "归一化") == ["npu_rms_norm"]
    assert names(index, "docstring asks for input's dtype") == ["npu_rms_norm"]


def test_the_excerpt_holds_the_word(index):
    (hit,) = search_api(index, ["新文档"])
    assert hit.excerpt == "归一化的新文档。"
    (hit,) = search_api(index, ["default 2.0"])
    assert "default 2.0" in hit.excerpt


def test_a_long_line_is_cut_around_the_word(nothing_found, in_a_folder):
    line = "x" * 300 + " needle " + "y" * 300
    docs = f'_add_torch_npu_docstr("npu_long", """\n功能描述\n{line}\n""")\n'
    wheel = make_doc_wheel(in_a_folder, {"torch_npu/_op_plugin_docs.py": docs.encode()})
    (hit,) = search_api(read_index(wheel), ["needle"])
    assert "needle" in hit.excerpt
    assert hit.excerpt.startswith("…x")
    assert hit.excerpt.endswith("y…")
    assert len(hit.excerpt) <= 102


def test_without_a_wheel_the_kits_names_and_notes_are_searched(nothing_found):
    assert names(None, "swiglu", "second")[0] == "npu_swiglu"
