"""What leaves for a terminal or a page steers neither, and JSON keeps its meaning."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionkit.cli import main
from fusionkit.commands.command import write_line, write_result
from fusionkit.visible import visible, visible_json, with_readings

ANY = st.text(st.characters(), max_size=40)  # surrogates among them
STEERING = ("Cc", "Cs", "Zl", "Zp")


def steers(character):
    return character not in "\t\n" and (
        unicodedata.category(character) in STEERING
        or unicodedata.bidirectional(character) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    )  # fmt: skip


@given(ANY)
def test_nothing_that_steers_is_left_and_nothing_else_is_touched(text):
    shown = visible(text)
    shown.encode("utf-8")
    assert not any(map(steers, shown))
    assert shown == "".join(
        character.encode("unicode_escape").decode().replace(r"\r", r"\x0d")
        if steers(character)
        else character
        for character in text
    )


@given(ANY)
def test_json_says_the_same(text):
    told = visible_json(json.dumps([text], ensure_ascii=False, indent=1))
    assert not any(map(steers, told))
    assert json.loads(told) == [text]


def test_results_and_errors_of_any_command_are_written_out(capsys):
    write_line("a\x1b[31m\x9bb")
    write_result({"a\u202e": "\x7f"})
    assert capsys.readouterr().out == 'a\\x1b[31m\\x9bb\n{\n "a\\u202e": "\\u007f"\n}\n'
    assert main(["scan", "no\x1b[2Jsuch"]) == 2
    assert capsys.readouterr().err.startswith("fusionkit: no\\x1b[2Jsuch: neither a file")


def test_a_usage_error_is_written_out(capsys):
    with pytest.raises(SystemExit):
        main(["scan", "x", "--lang", "\x1b[2J"])
    assert "\x1b" not in capsys.readouterr().err


def test_names_of_files_and_symbols_do_not_steer_the_report(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FUSIONKIT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "code"
    folder.mkdir()
    code = (
        "import torch\nfrom torch import nn\nclass N(nn.Module):\n    def forward(self, x):\n"
        "        s = '\x1b[2J\x9b'\n        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, True) + 1e-6))\n"
    )
    (folder / "a\x1b[31m.py").write_text(code, "utf-8")
    (folder / "b\x1b[31m.py").write_text("def f(:\n")
    out = tmp_path / "report.md"
    assert main(["scan", str(folder), "--out", str(out), "--lang", "en"]) == 0
    printed = capsys.readouterr().out
    for text in (printed, out.read_text("utf-8")):
        assert not any(map(steers, text))
        assert "a\\x1b[31m.py" in text
        assert "b\\x1b[31m.py" in text
    assert main(["scan", str(folder), "--json"]) == 0
    printed = capsys.readouterr().out
    assert not any(map(steers, printed))
    assert json.loads(printed)["candidates"][0]["file"] == "a\x1b[31m.py"


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("pattern has 9.999999747378752e-06, graph has", "pattern has 9.999999747378752e-06 (1e-05), graph has"),
        ("add.Scalar(mean, 9.999999974752427e-07)", "add.Scalar(mean, 9.999999974752427e-07 (1e-06))"),
        ("-0.10000000149011612", "-0.10000000149011612 (0.1)"),
        ("[0.044714998453855515, 2]", "[0.044714998453855515 (0.044715), 2]"),
        *[(same, same) for same in ("1e-05", "0.01171875", "0.30000000000000004", "9223372036854775807", "")],
        *[(same, same) for same in ("1.7976931348623157e+308", "v1.9999999747378752x")],
    ],
)  # fmt: skip
def test_a_rounded_number_is_followed_by_its_decimal_reading(text, reading):
    assert with_readings(text) == reading
