"""The check of archived pages accepts a whole page and sees each way in which one can be broken."""

from __future__ import annotations

import base64

import pytest

from fusionkit.widgets import bar_chart_svg, html_table

pytestmark = pytest.mark.browser

ROWS = [{"kernel": "rsqrt", "before": 24, "after": 0, "verdict": "PASS"}]
PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
        "0000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
    )
).decode()
WHOLE = (
    html_table(ROWS, caption="Kernels")
    + bar_chart_svg(ROWS, "kernel", ["before", "after"], title="Counts")
    + f'<img alt="plot" src="data:image/png;base64,{PNG}" width="20" height="20">'
)


@pytest.fixture
def opened(open_archived, tmp_path):
    def write_and_open(body: str):
        path = tmp_path / "page.html"
        path.write_text(f"<!doctype html><meta charset='utf-8'><title>t</title><body>{body}</body>", "utf-8")
        return open_archived(path)

    return write_and_open


def test_a_whole_page_is_accepted_and_all_of_it_seen(opened):
    page = opened(WHOLE)
    page.assert_whole()
    assert [(table["rows"], table["visible"]) for table in page.tables] == [(2, True)]
    assert [(p["kind"], p["name"]) for p in page.pictures] == [("svg", "Counts"), ("img", "plot")]
    assert "PASS" in page.text


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('<img alt="far" src="https://host.invalid/a.png">', "requests"),
        ('<link rel="stylesheet" href="//host.invalid/a.css">', "sources"),
        ('<script src="http://host.invalid/a.js"></script>', "sources"),
        ('<iframe src="https://host.invalid/"></iframe>', "sources"),
        ('<style>body {background: url("https://host.invalid/b.png")}</style>', "requests"),
        ('<style>@import "https://host.invalid/c.css";</style>', "requests"),
        ('<img alt="beside" src="beside.png">', "missing_pictures"),
        ('<img alt="empty" src="data:image/png;base64,AAAA">', "missing_pictures"),
        ('<svg width="0" height="0"><title>flat</title></svg>', "missing_pictures"),
        ('<table style="display:none"><tr><td>1</td></tr></table>', "hidden_tables"),
        ('<div style="visibility:hidden"><table><tr><td>1</td></tr></table></div>', "hidden_tables"),
        ("<details><table><tr><td>1</td></tr></table></details>", "hidden_tables"),
    ],
)
def test_each_flaw_is_seen(opened, body, field):
    page = opened(WHOLE + body)
    assert getattr(page, field), page
    with pytest.raises(AssertionError):
        page.assert_whole()


def test_what_only_a_script_would_show_is_not_seen(opened):
    page = opened("<div id='a'></div><script>a.innerHTML = '<table><tr><td>1</td></tr></table>'</script>")
    assert page.tables == []
    with pytest.raises(AssertionError, match="nothing was compared"):
        page.assert_whole()


def test_hostile_rows_do_not_reach_the_network_or_the_page(opened):
    hostile = "<img src='https://host.invalid/x.png'><script src='https://host.invalid/x.js'></script>"
    page = opened(html_table([{hostile: hostile, "verdict": hostile}], caption=hostile))
    page.assert_whole()
    assert page.pictures == []
    assert hostile in page.text
