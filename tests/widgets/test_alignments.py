"""Pattern and graph side by side: states in words, fields marked, like sites together; static and escaped."""

from __future__ import annotations

import html
import re
from dataclasses import asdict, replace

from missed_sites import BARE, CAST, DIM, ROWS, SITE, site_of

from fusionkit.widgets.alignments import alignments_html, alike, rows_html, site_html

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def words(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", re.sub(r"<br>", " ", markup)))


def cells(markup: str) -> list[list[str]]:
    return [
        [words(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)]
        for row in re.findall(r"<tr[^>]*>(.*?)</tr>", markup, re.DOTALL)
    ]


def marked(markup: str) -> list[str]:
    return [words(text) for text in re.findall(r"<mark[^>]*>(.*?)</mark>", markup)]


def test_each_row_says_in_sign_and_word_how_the_sides_stand_to_each_other():
    rows = cells(rows_html(SITE))[1:]
    assert [row[0] for row in rows] == [
        "= same",
        "\N{NOT EQUAL TO} differs: dim= cause 2",
        "+ graph only cause 3",
        "\N{NOT EQUAL TO} differs: operand order cause 1, cause 3",
        "\N{MINUS SIGN} pattern only",
    ]
    assert rows[1][1:] == [
        "mean = aten.mean.dim(x, [-1], True) my_norm_pattern.py:14",
        "mean_7 = aten.mean.dim(view_25, [3], True) model.py:102",
    ]
    assert rows[2][1] == "nothing"
    assert rows[4][2] == "nothing"


def state_of(row, causes) -> str:
    return cells(rows_html(replace(SITE, rows=(*ROWS[:2], row), causes=causes)))[-1][0]


def test_a_row_whose_op_is_the_same_says_what_differs_instead():
    behind = replace(ROWS[3], types=("dtype_path",), graph_call="aten.mul.Tensor(to_copy_3, view_25)")
    assert state_of(behind, (CAST,)) == "\N{NOT EQUAL TO} differs: operand cause 1"
    before = replace(behind, graph_call="aten.mul.Tensor(mean_7, view_25)")
    assert state_of(before, (CAST,)) == "\N{NOT EQUAL TO} differs: following op cause 1"
    other = replace(behind, graph_call="aten.div.Tensor(mean_7, view_25)")
    assert state_of(other, (CAST,)) == "\N{NOT EQUAL TO} differs: op cause 1"


def test_the_differing_fields_are_marked_and_nothing_else():
    assert marked(rows_html(replace(SITE, rows=ROWS[:2]))) == ["[-1]", "[3]"]
    assert marked(rows_html(SITE)) == ["[-1]", "[3]", "mean", "x", "view_25", "to_copy_3"]


def test_a_site_shows_rows_causes_and_the_matchers_words():
    told = words(site_html("rms_norm", SITE))
    for part in ("pattern MyNorm_bfloat16", "graph at mul_16", "1 argument_order", "2 dim_literal", DIM.fix):
        assert part in told
    assert "+ mean = aten.mean.dim(x, [3], True)" in told
    assert "it stopped at: structure" in told


def test_a_site_without_rows_says_so_and_still_tells_its_causes():
    told = words(site_html("rms_norm", BARE))
    assert "no op of the pattern is at this site" in told
    assert "1 root_not_indexed" in told
    assert "<svg" not in site_html("rms_norm", BARE)


def test_sites_missed_for_the_same_causes_share_a_block():
    sites = [site_of(number) for number in range(152)]
    markup = alignments_html({"rms_norm": sites}, empty="none")
    assert markup.count("<details open") == 1
    told = words(markup)
    assert "rms_norm: 152 sites missed by MyNorm_bfloat16: argument_order, dim_literal, dtype_path" in told
    assert "and 143 more" in told
    for number in (0, 1, 151):
        assert f"blocks.{number}.norm (mul_{number}, lib/model.py:103)" in told
    assert len(markup) < 60_000


def test_other_causes_other_variants_and_other_patterns_have_blocks_of_their_own():
    other = replace(SITE, causes=SITE.causes[:1])
    variant = replace(SITE, pattern="OtherNorm")
    assert [len(group) for group in alike([SITE, other, variant, site_of(3)])] == [2, 1, 1]
    markup = alignments_html({"rms_norm": [SITE, other], "rope": [SITE]})
    assert markup.count("<details open") == 3


def test_numbers_in_node_names_do_not_part_sites_and_values_do():
    def at(actual: str):
        return replace(SITE, causes=(replace(DIM, actual=actual),))

    assert len(alike([at("also used by mul_17"), at("also used by mul_208")])) == 1
    assert len(alike([at("placeholder arg39_1"), at("placeholder arg40_1")])) == 1
    assert len(alike([at("1e-06"), at("1e-05")])) == 2
    assert len(alike([at("float16"), at("float32")])) == 2


def test_nothing_missed_says_why():
    markup = alignments_html({"rms_norm": []}, "Misses", empty="no site was missed")
    assert words(markup) == "Missesno site was missed"


def test_it_is_static():
    markup = alignments_html({"rms_norm": [SITE]})
    for active in ("<script", "onclick", "<button", "<textarea", "http", "javascript:"):
        assert active not in markup


def test_hostile_names_stay_text():
    rows = tuple(
        replace(row, **{k: HOSTILE for k, v in asdict(row).items() if isinstance(v, str) and k != "state"})
        for row in ROWS
    )
    causes = tuple(replace(c, **dict.fromkeys((k for k in asdict(c)), HOSTILE)) for c in SITE.causes)
    site = replace(
        SITE, anchor=HOSTILE, module=HOSTILE, source=HOSTILE, pattern=HOSTILE, stage=HOSTILE, said=HOSTILE, rows=rows,
        causes=causes,
    )  # fmt: skip
    markup = alignments_html({HOSTILE: [site]}, HOSTILE)
    assert "<script" not in markup
    assert "<img" not in markup
    assert HOSTILE in words(markup)
