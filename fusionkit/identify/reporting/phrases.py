"""English notes, refusals and reasons of the library in Chinese: told once in English, translated where they are shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from fusionkit.identify.reporting.proving_phrases import PROVING
from fusionkit.identify.reporting.replacing_phrases import REPLACING
from fusionkit.identify.reporting.words import Lang

PHRASES: Mapping[str, str] = {**REPLACING, **PROVING}
"""English -> Chinese. What fills a hole {x} stays as it is; what fills one of `_TOLD` is a phrase itself."""

_TOLD = ("why", "what", "inside")
# What a hole holds, where that may have joints in it: words of an exception, or several parts.
_HELD = {"inside": "[^()]+?", "why": ".+?", "error": ".+?", "code": ".+?"}
_JOINT = "; "
_HOLE = re.compile(r"\{(\w+)\}")


def in_words(lang: Lang, text: str) -> str:
    """A text of the library in the language of a report."""
    return in_chinese(text) if lang == "zh" else text


@lru_cache(maxsize=4096)
def in_chinese(text: str) -> str:
    """`text` in Chinese: by its row, else part by part where parts are joined by "; "; a part without a row stays."""
    whole = _by_row(text)
    if whole is not None:
        return whole
    left, joint, right = text.partition(_JOINT)
    if not joint:
        return text
    place = len(left)
    while place > 0:  # the shortest beginning that has a row: exceptions hold joints of their own
        told = _by_row(text[:place])
        if told is not None:
            return f"{told}；{in_chinese(text[place + len(_JOINT) :])}"
        place = text.find(_JOINT, place + 1)
    return f"{left}{joint}{in_chinese(right)}"


def has_row(text: str) -> bool:
    """Whether the whole of `text` is a row of the table, or one with its holes filled."""
    return _by_row(text) is not None


def _by_row(text: str) -> str | None:
    if text in PHRASES:
        return PHRASES[text]
    for row, (literal, chinese) in _TEMPLATES.items():
        if literal in text and (found := _pattern(row).fullmatch(text)):
            return chinese.format(**{name: _filled(name, held) for name, held in found.groupdict().items()})
    return None


def _filled(hole: str, held: str) -> str:
    if hole in _TOLD:
        return in_chinese(held)
    return held.replace(" and ", "、") if hole == "names" else held


def _longest_literal(row: str) -> str:
    return max(_HOLE.split(row)[::2], key=len)


_TEMPLATES = {row: (_longest_literal(row), chinese) for row, chinese in PHRASES.items() if _HOLE.search(row)}


@lru_cache(maxsize=len(_TEMPLATES))
def _pattern(row: str) -> re.Pattern[str]:
    parts = _HOLE.split(row)
    told = [_hole(part) if place % 2 else re.escape(part) for place, part in enumerate(parts)]
    return re.compile("".join(told), re.DOTALL)


def _hole(name: str) -> str:
    return f"(?P<{name}>{_HELD.get(name, f'(?:(?!{_JOINT}).)+?')})"
