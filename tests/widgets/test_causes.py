"""Cause cards: one per distinct cause, both values, all sites; escaped."""

from __future__ import annotations

from html.parser import HTMLParser

from fusionkit.widgets.causes import cause_cards


def row(**changes: str) -> dict[str, str]:
    return {
        "pattern": "rms_norm",
        "variant": "MyNorm",
        "module": "block.0.norm",
        "type": "scalar_literal",
        "pattern node": "add",
        "pattern source": "my_norm_pattern.py:26",
        "graph node": "add_6",
        "graph source": "model.py:102",
        "expected": "1e-05",
        "actual": "9.999999974752427e-07",
        "fix": "take the literal from the graph",
    } | changes


class Lines(HTMLParser):
    """The text of each card, and of each of its lines by its head."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.captions: list[str] = []
        self.cards: list[dict[str, str]] = []
        self._head = ""
        self._in = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag in ("caption", "th", "td"):
            self._in = tag
        if tag == "table":
            self.cards.append({})
        if tag == "th":
            self._head = ""
        if tag == "td":
            self.cards[-1][self._head] = ""
        if tag == "br":
            self.handle_data("\n")
        assert tag != "script"

    def handle_endtag(self, tag):
        if tag in ("caption", "th", "td"):
            self._in = ""

    def handle_data(self, data):
        if self._in == "caption":
            self.captions.append(data)
        elif self._in == "th":
            self._head += data
        elif self._in == "td":
            self.cards[-1][self._head] += data


def test_a_card_tells_type_nodes_both_values_and_what_to_do():
    found = Lines(cause_cards([row()], "Causes", "none"))
    assert found.captions == ["scalar_literal: 1 site of rms_norm missed by MyNorm"]
    assert found.cards == [
        {
            "in the pattern": "1e-05 at add (my_norm_pattern.py:26)",
            "in the graph": "9.999999974752427e-07 at add_6 (model.py:102)",
            "what to do": "take the literal from the graph",
            "1 site": "block.0.norm (add_6)",
        }
    ]


def test_sites_with_the_same_cause_share_a_card_and_others_do_not():
    rows = [
        row(),
        row(**{"module": "block.1.norm", "graph node": "add_7"}),
        row(actual="1e-03", module="last"),
    ]
    first, second = Lines(cause_cards(rows, "Causes", "none")).cards
    assert first["2 sites"] == "block.0.norm (add_6)\nblock.1.norm (add_7)"
    assert first["in the graph"] == "9.999999974752427e-07 at add_6, add_7 (model.py:102)"
    assert second["1 site"] == "last (add_6)"
    assert second["in the graph"].startswith("1e-03 ")


def test_a_cause_without_nodes_and_values_is_told_all_the_same():
    bare = dict.fromkeys(("pattern node", "pattern source", "graph node", "graph source", "expected"), "")
    found = Lines(cause_cards([row(type="flag_off", actual="off", variant="", **bare)], "Causes", "none"))
    assert found.captions == ["flag_off: 1 site of rms_norm missed by any variant"]
    assert found.cards[0]["in the pattern"] == "nothing"
    assert found.cards[0]["in the graph"] == "off"
    assert found.cards[0]["1 site"] == "block.0.norm"


def test_no_rows_say_why():
    markup = cause_cards([], "Causes", "no site was missed")
    assert "Causes" in markup
    assert "no site was missed" in markup
    assert "<table" not in markup


def test_hostile_text_stays_text():
    hostile = "<script>alert(1)</script>"
    found = Lines(cause_cards([dict.fromkeys(row(), hostile)], "Causes", "none"))
    assert found.cards[0]["what to do"] == hostile
    assert found.cards[0]["1 site"] == f"{hostile} ({hostile})"
