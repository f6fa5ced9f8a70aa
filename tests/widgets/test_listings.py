"""Listings: text escaped, diffs tinted, source cut to what matters with the whole folded beside it."""

from __future__ import annotations

import html
import re

from fusionkit.subjects.fragments import ParameterSource, SourceFragment
from fusionkit.widgets.listings import fragment_listing, listing


def words(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", markup))


def fragment(text: str, call_line: int | None = None, **changes: object) -> SourceFragment:
    fields = {
        "primitive": "rms_norm",
        "qualname": "lib.Norm.forward",
        "file": "lib/norm.py",
        "first_line": 101,
        "text": text,
        "call_line": call_line,
        "parameters": (ParameterSource("self.weight", "module_parameter", "bfloat16", (16,)),),
        "modules": ("a.norm", "b.norm"),
    }
    return SourceFragment(**(fields | changes))


LONG = (
    "    def forward(\n        self,\n        x,\n    ):\n"
    '        """What it does.\n\n        More.\n        """\n'
    + "".join(f"        x = x + {number}\n" for number in range(60))
    + "        return x\n"
)


def numbers(markup: str) -> list[int]:
    shown = re.search(r"<pre[^>]*>(.*?)</pre>", markup, re.DOTALL)[1]
    return [int(n) for n in re.findall(r"^ *(\d+)  ", words(shown), re.MULTILINE)]


def test_text_is_escaped_and_no_diff_is_tinted():
    markup = listing("<b>\n+ not a diff\n", "a & b")
    assert words(markup) == "a & b<b>\n+ not a diff"
    assert "<b>" not in markup
    assert "<span" not in markup


def test_a_diff_has_added_and_removed_lines_tinted():
    markup = listing("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n same\n", "diff")
    added, removed = (
        re.findall(r'<span style="background:(#\w+)">\+new', markup),
        re.findall(r'<span style="background:(#\w+)">-old', markup),
    )
    assert len(added) == len(removed) == 1
    assert added != removed
    assert "<strong>--- a/f</strong>" in markup
    assert "\n same</pre>" in markup


def test_a_short_function_is_shown_whole_with_its_line_numbers_and_call_marked():
    markup = fragment_listing(fragment("def f(x):\n    y = g(x)\n    return y\n", call_line=102))
    assert numbers(markup) == [101, 102, 103]
    assert re.search(r'<span style="background:[^"]+">  102      y = g\(x\)</span>', markup)
    assert "<details" not in markup
    assert "rms_norm: lib.Norm.forward (lib/norm.py:102)" in words(markup)
    assert "parameters: self.weight: module parameter bfloat16[16]" in words(markup)
    assert "modules: a.norm, b.norm" in words(markup)


def test_a_long_function_is_cut_to_signature_and_call_and_the_whole_is_folded():
    markup = fragment_listing(fragment(LONG, call_line=140))
    assert numbers(markup) == [101, 102, 103, 104, *range(132, 144)]
    assert words(markup.split("<details")[0]).count("\N{VERTICAL ELLIPSIS}") == 2
    assert "all 69 lines, 101 to 169" in markup
    folded = markup.split("<details")[1]
    assert [f"{n}  " in words(folded) for n in (101, 106, 150, 169)] == [True] * 4


def test_without_a_call_only_the_docstring_is_left_out():
    assert numbers(fragment_listing(fragment(LONG))) == [101, 102, 103, 104, *range(109, 170)]


def test_text_that_is_no_function_is_shown_whole():
    text = "x = (\n" * 50
    assert numbers(fragment_listing(fragment(text))) == list(range(101, 151))


def test_no_source_is_said():
    assert "no source text" in fragment_listing(fragment(""))


def test_hostile_source_stays_text():
    hostile = "<script>alert(1)</script>"
    markup = fragment_listing(fragment(f"# {hostile}", qualname=hostile, file=hostile, modules=(hostile,)))
    assert "<script" not in markup
    assert words(markup).count(hostile) == 4
