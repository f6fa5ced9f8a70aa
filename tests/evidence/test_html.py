"""Pages show everything and fetch and run nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nbformat import NotebookNode, v4

from fusionkit.evidence.clean_html import clean_html
from fusionkit.evidence.html import index_html, notebook_html

PNG = "iVBORw0KGgo="
ACTIVE_TAGS = {
    "script",
    "link",
    "iframe",
    "object",
    "embed",
    "frame",
    "base",
    "form",
    "video",
    "audio",
    "source",
}


class Tags(HTMLParser):
    """Collects tags, their attributes and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


def assert_inert(page: str) -> Tags:
    found = Tags(page)
    for tag, attributes in found.tags:
        assert tag not in ACTIVE_TAGS
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name not in {"srcset", "srcdoc", "poster", "action", "formaction", "data", "background"}
            if name == "src" or (name in {"href", "xlink:href"} and tag != "a"):
                assert (value or "").startswith(("data:image/", "#")), (tag, name, value)
            assert "javascript:" not in re.sub(r"\s", "", value or "").lower()
            if name == "style":
                assert "url(" not in (value or "")
    assert "<script" not in page.lower()
    assert "@import" not in page
    return found


def executed(*outputs: NotebookNode, markdown: str = "# A title\n\ntext") -> NotebookNode:
    code = v4.new_code_cell("x = '<script>' # comment", outputs=list(outputs), execution_count=1)
    return v4.new_notebook(cells=[v4.new_markdown_cell(markdown), code])


def display(**data: str) -> NotebookNode:
    return v4.new_output("display_data", {name.replace("__", "/"): value for name, value in data.items()})


def test_the_page_is_whole_titled_and_forbids_everything() -> None:
    page = notebook_html(executed(markdown="intro\n\n## Phase `1` of *flux* <b>\n\n# later"))
    tags = assert_inert(page)
    assert page.startswith("<!DOCTYPE html>")
    assert "<title>Phase 1 of flux &lt;b&gt;</title>" in page
    policy = [a["content"] for t, a in tags.tags if t == "meta" and "http-equiv" in a]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    assert page.count("<html") == page.count("</html>") == 1


def test_a_notebook_without_heading_takes_the_fallback() -> None:
    assert "<title>07_reduce_copies</title>" in notebook_html(
        v4.new_notebook(), fallback_title="07_reduce_copies"
    )


def test_tables_pictures_text_and_errors_are_shown() -> None:
    page = notebook_html(
        executed(
            display(text__html="<table><tr><td>rms_norm</td><td>12</td></tr></table>", text__plain="a table"),
            display(image__png=PNG, text__plain="<Figure>"),
            display(**{"image/svg+xml": "<svg xmlns='http://www.w3.org/2000/svg'><rect/></svg>"}),
            v4.new_output("stream", name="stdout", text="12 < 13 & \x1b[31mred\x1b[0m"),
            v4.new_output("error", ename="E", evalue="<i>", traceback=["\x1b[1mboom <i>"]),
        )
    )
    tags = assert_inert(page)
    images = [a for t, a in tags.tags if t == "img"]
    assert [(a["src"] or "")[:19] for a in images] == ["data:image/png;base", "data:image/svg+xml;"]
    assert all(a["alt"] for a in images)
    for shown in ("rms_norm", "12 < 13 & red", "boom <i>", "x = '<script>' # comment"):
        assert shown in tags.words
    assert "a table" not in tags.words


def test_widgets_and_javascript_are_left_out() -> None:
    node = executed(
        display(**{"application/vnd.jupyter.widget-view+json": "{}", "text/plain": "VBox(children=...)"}),
        display(**{"application/javascript": "alert(1)", "text/plain": "<Javascript object>"}),
        display(**{"application/javascript": "alert(1)", "text/html": "<b>static</b>"}),
    )
    node.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {"secret": 1}}}
    page = notebook_html(node)
    words = assert_inert(page).words
    assert "static" in words
    for gone in ("VBox", "alert", "Javascript object", "secret"):
        assert gone not in page


def test_an_output_that_asks_for_a_frame_gets_none() -> None:
    output = display(text__html="<p>isolated</p>")
    output.metadata["text/html"] = {"isolated": True}
    assert "isolated" in assert_inert(notebook_html(executed(output))).words


HOSTILE = (
    "<script>alert(1)</script>kept",
    "<ScRiPt src='https://e.com/x.js'></sCrIpT>kept",
    "<img src=https://e.com/a.png alt=kept>",
    "<img src='//e.com/a.png' srcset='https://e.com/b.png 2x' alt=kept>",
    "<img src='data:text/html,<script>1</script>' alt=kept>",
    f"<img src='data:image/png;base64,{PNG}' onerror=alert(1) alt=kept>kept",
    "<a href=' java\nscript:alert(1)'>kept</a>",
    "<a href='data:text/html,x'>kept</a>",
    "<iframe srcdoc='<p>x'></iframe>kept",
    "<object data='https://e.com'></object>kept<embed src=https://e.com>",
    "<link rel=stylesheet href=https://e.com/x.css>kept",
    "<style>@import 'https://e.com/x.css'; td > b { background: url(https://e.com/a) }</style>kept",
    "<div style='background:url(https://e.com/a)'>kept</div>",
    "<svg><use xlink:href='https://e.com/a#b'/><image href='https://e.com/a'/></svg>kept",
    "<svg onload=alert(1)><script>1</script></svg>kept",
    "<meta http-equiv=refresh content='0;url=https://e.com'>kept",
    "<form action=https://e.com><button formaction=https://e.com>kept</button></form>",
    "<base href=https://e.com>kept",
    "<video poster=https://e.com/a><source src=https://e.com/a></video>kept",
    "kept<!-- <script>alert(1)</script> --><b",
    "<details><summary>kept</summary></details>",
)


@pytest.mark.parametrize("source", HOSTILE)
def test_hostile_html_is_made_inert_wherever_it_stands(source: str) -> None:
    assert "kept" in assert_inert(clean_html(source)).words
    output = display(text__html=source)
    page = notebook_html(executed(output, markdown=f"# t\n\n{source}\n\nafter"))
    assert "kept" in assert_inert(page).words
    assert "after" in Tags(page).words


def test_a_tag_left_open_does_not_swallow_what_follows() -> None:
    assert (
        clean_html("</i><div><b>x</div>y<p>z") == "<div><b>x</b></div><b>y<p>z</p></b>"
    )  # as a browser reads it
    page = notebook_html(
        executed(display(text__html="<table><tr><td><!--"), display(text__plain="last words"))
    )
    cell_end = page.index("last words")
    assert page.index("</td></tr></tbody></table>") < cell_end


def test_local_svg_references_and_css_selectors_survive() -> None:
    svg = "<svg><rect fill='url(#grad)'/><use xlink:href='#a'/></svg>"
    assert clean_html(svg) == '<svg><rect fill="url(#grad)"></rect><use xlink:href="#a"></use></svg>'
    assert clean_html("<style>td > b { color: red }</style>") == "<style>td > b { color: red }</style>"
    titled = '<svg viewBox="0 0 9 9"><title>Counts</title><text>12</text></svg>'
    assert clean_html(titled) == titled
    assert clean_html("<title>not here</title><p>x</p>") == "not here<p>x</p>"
    assert clean_html(b"<p>1 &lt; 2 &amp; &#65; a<br>b</p>") == "<p>1 &lt; 2 &amp; A a<br>b</p>"


@settings(max_examples=300)
@given(st.text("<>/=\"' &;#!-asripthrefonc:\n", max_size=60))
def test_anything_comes_out_inert_and_stays_as_it_is(source: str) -> None:
    once = clean_html(source)
    assert_inert(once)
    assert clean_html(once) == once


@given(st.text(max_size=40))
def test_text_survives(source: str) -> None:
    escaped = source.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    read = Tags(f"<p>{escaped}</p>").words.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    assert (
        Tags(clean_html(f"<p>{escaped}</p>")).words == read
    )  # ends of lines and NUL as a browser reads them


def test_the_index_links_pages_and_escapes() -> None:
    page = index_html(
        "flux & co",
        [
            {"name": "01_a", "verdict": "PASS", "reason": "12 < 13", "page": "01_a.html"},
            {"name": "02_b", "verdict": None, "reason": None, "page": None},
        ],
        ["record.md"],
    )
    tags = assert_inert(page)
    assert [a["href"] for t, a in tags.tags if t == "a"] == ["01_a.html", "record.md"]
    assert [a["class"] for t, a in tags.tags if t == "span"] == ["badge pass", "badge did-not-run"]
    assert "12 < 13" in tags.words
    assert "<title>flux &amp; co</title>" in page
