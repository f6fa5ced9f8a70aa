"""The allow-list: what it refuses, each by an example, and what notebooks show and must not lose."""

from __future__ import annotations

import io
import re
from collections import Counter
from html.parser import HTMLParser

import pandas as pd
import pytest
from nbformat import v4

from fusionkit.evidence.clean_html import clean_html
from fusionkit.evidence.html import notebook_html
from fusionkit.widgets import bar_chart_svg, html_table
from fusionkit.widgets.drawing import DrawnNode, graph_svg

PNG = "data:image/png;base64,iVBORw0KGgo="


class Elements(HTMLParser):
    """Start tags with their attributes, and the text without white space."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(sorted((name, value or "") for name, value in attrs))))

    def handle_data(self, data):
        self.text += "".join(data.split())


REFUSED = [
    ("<svg onload=alert(1)><g onclick=alert(1)></g></svg>", "alert"),
    ("<svg><script>alert(1)</script></svg>", "alert"),
    ("<svg><foreignObject><iframe srcdoc='x'></iframe></foreignObject></svg>", "iframe"),
    ("<svg><a><set attributeName='href' to='javascript:alert(1)'/></a></svg>", "javascript"),
    ("<svg><animate attributeName='href' values='javascript:alert(1)'/></svg>", "javascript"),
    ("<svg><use href='data:image/svg+xml,<svg id=x/>#x'/></svg>", "data:"),
    ("<svg><feImage href='https://e.invalid/a'/></svg>", "invalid"),
    ("<math><maction actiontype='statusline' href='javascript:alert(1)'>x</maction></math>", "javascript"),
    ("<a href='&#106;avascript&colon;alert(1)'>x</a>", "href"),
    ("<a href='java&Tab;script&#x3A;alert(1)'>x</a>", "href"),
    ("<svg><a xlink:href='java&NewLine;script:alert(1)'>x</a></svg>", "href"),
    ("<a href='vbscript:x'>x</a>", "href"),
    ("<a href='data:image/png;base64,AAAA'>x</a>", "href"),
    ("<img src='data:text/html;base64,AAAA'>", "src"),
    ("<img src='data:image/x,<script>'>", "src"),
    ("<area href='https://e.invalid/'>", "href"),
    ("<p style='background:url(https://e.invalid/a)'>x</p>", "invalid"),
    ("<p style='background:u\\72l(https://e.invalid/a)'>x</p>", "invalid"),
    ("<p style='background:image-set(\"https://e.invalid/a\" 1x)'>x</p>", "invalid"),
    ("<p style='background:linear-gradient(red,url(//e.invalid/a))'>x</p>", "invalid"),
    (
        "<rect fill='url(https://e.invalid/a#b)'/><svg><rect fill='url(https://e.invalid/a#b)'/></svg>",
        "invalid",
    ),
    ("<style>@font-face { font-family: x; src: url(https://e.invalid/a) }</style>", "invalid"),
    ("<style>@im\\port 'https://e.invalid/a';</style>", "@"),
    ("<style>p { background: ur@import;l(https://e.invalid/a) }</style>", "invalid"),
    ("<style></url(x)style><img src=x onerror=alert(1)></style>", "<img"),
    ("<meta http-equiv='refresh' content='0;url=https://e.invalid/'>", "meta"),
    ("<base href='https://e.invalid/'>", "base"),
    ("<link rel='preload' href='https://e.invalid/'>", "link"),
    ("<iframe src='https://e.invalid/'>inside</iframe>", "inside"),
    ("<object data='https://e.invalid/'>inside</object>", "inside"),
    ("<form action='https://e.invalid/'><input name='a' autofocus><select><option>x</select></form>", "<"),
    ("<button formaction='https://e.invalid/'>x</button>", "<"),
    ("<textarea>x</textarea>", "<"),
    ("<video src='https://e.invalid/a' poster='https://e.invalid/b'></video><audio src=x></audio>", "<"),
    ("<picture><source srcset='https://e.invalid/a'></picture>", "<"),
    ("<p contenteditable autofocus ping='https://e.invalid/' data-x='1' slot='a'>x</p>", " "),
    ("<table background='https://e.invalid/a'><tr><td>x</table>", "background"),
    ("<dialog open>x</dialog><x-widget>y</x-widget><portal src='https://e.invalid/'></portal>", "<"),
    ("<template><p>inside</p></template>", "inside"),
    ("<!-- <p>inside</p> --><?php inside ?>", "inside"),
]


@pytest.mark.parametrize(("source", "gone"), REFUSED)
def test_what_no_list_names_is_refused(source, gone):
    cleaned = clean_html(f"{source}<p>kept</p>")
    assert "kept" in cleaned
    assert gone not in cleaned.replace("<p>kept</p>", "").replace("<em>[image: not embedded]</em>", "")
    assert clean_html(cleaned) == cleaned


def test_signs_in_attributes_stay_entities_so_that_no_attribute_ends_a_tag():
    markup = '<p title="&lt;style&gt; a src=&quot;&lt;/p&gt;">x</p>'
    assert clean_html(markup) == markup


def test_an_image_that_is_not_embedded_becomes_its_text_whatever_the_text_says():
    assert clean_html("<img alt='a src=\"b\" > c' src='https://e.invalid/'>") == (
        "<em>[image: a src=&quot;b&quot; &gt; c]</em>"
    )
    assert clean_html("<img src='beside.png'>") == "<em>[image: not embedded]</em>"


def test_a_stylesheet_within_a_stylesheet_hides_no_rule():
    cleaned = clean_html("<svg><style><style>a</style>@import 'https://e.invalid/a'</style></svg>kept")
    assert "@import" not in "".join(re.findall(r"<style[^>]*>(.*?)</style>", clean_html(cleaned)))
    assert "kept" in cleaned


@pytest.mark.parametrize(
    "name", ["pattern", "path", "line", "text", "filter", "set", "view", "use", "ms", "none", "math", "title"]
)
def test_a_part_of_a_drawing_that_stands_in_text_takes_no_text_with_it(name):
    assert clean_html(f"<p>hits of <{name}> a <b>c</b></p>after") == "<p>hits of  a <b>c</b></p>after"
    assert clean_html(f"<svg/><{name}>a</{name}>") == "<svg></svg>a"


def test_half_of_a_surrogate_pair_does_not_stop_a_page():
    assert clean_html("<p>a\ud800</p>") == "<p>a?</p>"


TABLE = html_table(
    [{"site": "blocks.0.norm", "verdict": "PASS", "eps": 1e-06}, {"site": "<b>", "verdict": "FAIL", "eps": None}],
    caption="Sites", merge=["site"],
)  # fmt: skip
CHART = bar_chart_svg(
    [{"kernel": "rsqrt", "before": 24, "after": None}], "kernel", ["before", "after"], title="K"
)
GRAPH = graph_svg([DrawnNode("x", "", (), "input"), DrawnNode("mul", "mul", ("x",), differs=True)], "a site")
KEPT = [
    TABLE,
    CHART,
    GRAPH,
    f'<img src="{PNG}" alt="loss" width="20" height="10">',
    '<details open class="code"><summary>code</summary><pre><span class="ansi-red-fg">red</span></pre></details>',
    '<a href="https://e.invalid/a?b=1#c">far</a> <a href="#Phase-1">here</a> <a href="02_b.html">next</a>',
    '<h2 id="f(x)">f(x)</h2><ul><li>a<kbd>b</kbd></li></ul><blockquote>q</blockquote><hr>',
    '<p style="color:rgb(1, 2, 3);width:calc(1px + 2em);transform:rotate(1deg)">x</p>',
    '<style media="print">td:not(.a):nth-child(2) > b { color: hsl(1 2% 3%); background: url(#a) }</style>',
    pd.DataFrame({"op": ["npu_rms_norm"], "us": [1.5]})._repr_html_(),
]


@pytest.mark.parametrize("markup", KEPT)
def test_what_notebooks_show_comes_out_as_it_went_in(markup):
    before, after = Elements(markup), Elements(clean_html(markup))
    assert [tag for tag in after.tags if tag[0] != "tbody"] == [
        (tag, tuple(pair for pair in pairs if pair[0] != "scoped"))
        for tag, pairs in before.tags
        if tag != "tbody"
    ]
    assert after.text == before.text
    assert clean_html(clean_html(markup)) == clean_html(markup)


def test_a_figure_of_matplotlib_keeps_its_drawing_styles_and_references():
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.add_subplot(title="loss <1>")
    axes.plot([1, 2, 3], [3, 1, 2], "o--", label="a")
    axes.legend()
    stream = io.StringIO()
    figure.savefig(stream, format="svg")
    cleaned = clean_html(stream.getvalue())
    before, after = Elements(stream.getvalue()), Elements(cleaned)
    drawn = {"svg", "g", "path", "use", "defs", "clippath", "rect", "style"}
    assert Counter(tag for tag in after.tags if tag[0] in drawn) == Counter(
        (tag, tuple(pair for pair in pairs if pair != ("xmlns:xlink", "") or tag != "svg"))
        for tag, pairs in before.tags if tag in drawn
    )  # fmt: skip
    assert "stroke-linejoin: round" in cleaned
    assert re.search(r'clip-path="url\(#\w+\)"', cleaned)
    assert re.search(r'<use xlink:href="#\w+"', cleaned)
    assert "viewBox=" in cleaned
    assert "Matplotlib v" not in cleaned  # the picture's metadata


def test_colours_of_a_terminal_and_embedded_pictures_stand_in_the_page():
    stream = v4.new_output("stream", text="\x1b[31mred\x1b[0m \x1b[1mbold\x1b[0m")
    picture = v4.new_output(
        "display_data", {"text/html": f'<img src="{PNG}" alt="p"><img src="x.png" alt="beside">'}
    )
    page = notebook_html(v4.new_notebook(cells=[v4.new_code_cell("run()", outputs=[stream, picture])]))
    assert '<span class="ansi-red-fg">red</span> <span class="ansi-bold">bold</span>' in page
    (image,) = re.findall(r"<img[^>]*>", page)
    assert dict(Elements(image).tags[0][1]) == {"src": PNG, "alt": "p"}
    assert "<em>[image: beside]</em>" in page
