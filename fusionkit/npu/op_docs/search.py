"""Search the names and texts of torch_npu's API."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fusionkit.encoding import Result
from fusionkit.npu.op_docs.index import NOTHING, ApiIndex, IndexEntry
from fusionkit.npu.op_docs.kit import kit_names
from fusionkit.npu.op_docs.notes import notes_on
from fusionkit.npu.op_docs.sections import split_sections

# Weight of a word by the best place in which it occurs.
_NAME, _PART_OF_NAME, _DESCRIPTION, _SIGNATURE, _ELSEWHERE, _EXAMPLE = 32.0, 16.0, 8.0, 4.0, 2.0, 1.0
_WEIGHTS = {"description": _DESCRIPTION, "signature": _SIGNATURE, "examples": _EXAMPLE}
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class SearchHit(Result):
    """A name with all words: its score, and the line of its text with the most words."""

    name: str
    score: float
    excerpt: str


def search_api(index: ApiIndex | None, words: Sequence[str]) -> tuple[SearchHit, ...]:
    """The entries whose name or text contains all `words`, ignoring case, the best first.

    The text includes the kit's notes. Without an index only the kit's names and notes are searched.
    """
    wanted = [word.casefold() for text in words for word in text.split()]
    entries = index.entries if index else dict.fromkeys(kit_names(), NOTHING)
    hits = [hit for name, entry in entries.items() if (hit := _hit(name, entry, wanted))]
    return tuple(sorted(hits, key=lambda hit: (-hit.score, len(hit.name), hit.name)))


def _hit(name: str, entry: IndexEntry, wanted: Sequence[str]) -> SearchHit | None:
    texts = _texts(name, entry)
    score = 0.0
    for word in wanted:
        best = max([_in_name(name, word), *(weight for weight, text in texts if word in text.casefold())])
        if not best:
            return None
        score += best
    return SearchHit(name, score, _excerpt([text for _, text in texts], wanted)) if wanted else None


def _texts(name: str, entry: IndexEntry) -> list[tuple[float, str]]:
    """(weight, text) of all parts of an entry, the highest weight first."""
    sections = split_sections(entry.doc.text)
    weighted = [(_WEIGHTS.get(section.kind, _ELSEWHERE), section.text) for section in sections]
    weighted += [(_SIGNATURE, schema.text) for schema in entry.schemas]
    weighted += [(_SIGNATURE, entry.signature)]
    weighted += [(_ELSEWHERE, note.text(lang)) for note in notes_on(name) for lang in ("en", "zh")]
    return sorted(weighted, key=lambda pair: -pair[0])


def _in_name(name: str, word: str) -> float:
    folded = name.casefold()
    if word in re.split(r"[_.]", folded) or word == folded:
        return _NAME
    return _PART_OF_NAME if word in folded else 0.0


def _excerpt(texts: Sequence[str], wanted: Sequence[str]) -> str:
    """The first line with the most wanted words, cut around the first of them."""
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    best = max(lines, key=lambda line: sum(word in line.casefold() for word in wanted), default="")
    places = [at for word in wanted if (at := best.casefold().find(word)) >= 0]
    start = max(0, min(min(places, default=0) - _WIDTH // 3, len(best) - _WIDTH))
    cut = best[start : start + _WIDTH]
    return f"{'…' if start else ''}{cut}{'…' if start + _WIDTH < len(best) else ''}"
