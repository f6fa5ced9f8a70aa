"""Text in Markdown stays text, whatever it holds: judged by a Markdown parser that is not the kit's."""

import re

import mistune
from hypothesis import given
from hypothesis import strategies as st

from fusionkit.identify.reporting.fences import cell, fenced, one_line, span, table

TEXT = st.text(alphabet=st.sampled_from("`~ab|\\<>*_#-\n \t[]()&;"), max_size=60)
parse = mistune.create_markdown(renderer="ast", plugins=["table"])


@given(TEXT)
def test_a_fenced_text_is_one_code_block_and_nothing_else(text):
    blocks = [
        token
        for token in parse(f"before\n\n{fenced(text, 'python')}\n\nafter")
        if token["type"] != "blank_line"
    ]
    assert [block["type"] for block in blocks] == ["paragraph", "block_code", "paragraph"]
    assert blocks[1]["raw"].rstrip("\n") == text.expandtabs(4).rstrip("\n") or "\t" in text


@given(TEXT)
def test_a_span_is_one_code_span(text):
    if not one_line(text):
        return
    (paragraph,) = parse(f"x {span(text)} y")
    kinds = [child["type"] for child in paragraph["children"]]
    assert kinds == ["text", "codespan", "text"]


@given(st.lists(TEXT, min_size=2, max_size=2), TEXT)
def test_a_table_has_its_rows_and_columns_whatever_stands_in_them(row, other):
    lines = table(["a", "b"], [row, [other, "z"]]).split("\n")
    assert len(lines) == 4
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 3 for line in lines if not re.search(r"\\\\\|", line))


def test_control_characters_and_line_breaks_do_not_reach_a_cell():
    assert cell("a\n| b\x00\u2028c") == "a \\| b\\x00 c"


def test_a_span_of_nothing_is_nothing():
    assert span("") == ""
