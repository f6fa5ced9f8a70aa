"""Whether a replacement can be written for what is recommended: what has to be written by hand is deferred."""

from __future__ import annotations

from dataclasses import replace

from fusionkit.errors import USER_CODE_ERRORS
from fusionkit.identify.candidates import Candidate
from fusionkit.identify.replacing import refusal
from fusionkit.identify.reporting.phrases import in_chinese
from fusionkit.identify.source.files import SourceFile

BY_HAND = ("no replacement can be written for it: {why}", "写不出替换代码：{why}")
INHERITED = (
    "the code is inherited: replace it in {base}, where it is written",
    "代码是继承来的：应在 {base} 处替换",
)


def deferred_by_hand(candidate: Candidate, file: SourceFile) -> Candidate:
    """The candidate; deferred with the reason, where it was recommended and `file` gives no replacement for it."""
    if candidate.recommend != "yes":
        return candidate
    if candidate.inherited_from:
        return _deferred(candidate, INHERITED, base=candidate.inherited_from)
    try:
        why = refusal(file, candidate.site)
    except USER_CODE_ERRORS as error:  # a fault of the writer, which must not cost the scan
        return _deferred(
            candidate, BY_HAND, why=f"the writer broke on it ({type(error).__name__}); please report it"
        )
    return _deferred(candidate, BY_HAND, why=why) if why else candidate


def _deferred(candidate: Candidate, words: tuple[str, str], **filled: str) -> Candidate:
    translated = {name: in_chinese(text) for name, text in filled.items()}
    english, chinese = words[0].format(**filled), words[1].format(**translated)
    return replace(
        candidate,
        recommend="defer",
        priority=min(candidate.priority + 1, 3),
        reason=english,
        reason_zh=chinese,
    )
