"""A name in the code says what it holds: none is a bare participle such as `told` or `found`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fusionkit

ROOT = Path(fusionkit.__file__).parent
VAGUE = {"told", "found", "held", "asked"}

# Folders that are not walked, each with the reason.
EXEMPT = {
    "identify": "keeps its words until it is rebuilt",
}


def vague_names(text: str) -> Iterator[tuple[int, str]]:
    """Line and name of every definition, variable, parameter, attribute and keyword with a vague name."""
    for node in ast.walk(ast.parse(text)):
        for field in ("name", "id", "arg", "attr", "asname", "rest"):
            name = getattr(node, field, None)
            if isinstance(name, str) and is_vague(name):
                yield getattr(node, "lineno", 0), name


def is_vague(name: str) -> bool:
    """Whether the name is, or begins with, such a word: `told`, `_Told`, `_told_pair`, `held_tensors`."""
    return name.strip("_").lower().split("_")[0] in VAGUE


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("found = [told for told in held]", {"found", "told", "held"}),
        ("def f(asked, *found, **told): return asked.held", {"asked", "found", "told", "held"}),
        ("class _Told:\n    _found: int = 0", {"_Told", "_found"}),
        ("def _told_pair(): f(held=1)\nimport re as found", {"_told_pair", "held", "found"}),
        ("with x as told: pass\ntry: pass\nexcept E as found: pass", {"told", "found"}),
        ("match x:\n    case [held, *told]: pass\n    case {**asked}: pass", {"held", "told", "asked"}),
        ("not_found = foundation = 'told, found, held, asked'", set()),
    ],
)
def test_every_kind_of_name_is_seen(text, names):
    assert {name for _, name in vague_names(text)} == names


def test_a_name_says_what_it_holds():
    vague = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted(ROOT.rglob("*.py"))
        if path.relative_to(ROOT).parts[0] not in EXEMPT
        for line, name in vague_names(path.read_text("utf-8"))
    ]
    assert not vague, "\n".join(vague)
