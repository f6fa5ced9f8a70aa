"""Whether and how a replacement can be written for what is recommended: what is left to the hand is deferred."""

from __future__ import annotations

from dataclasses import replace

from fusionkit.errors import USER_CODE_ERRORS
from fusionkit.identify.candidates import Candidate
from fusionkit.identify.replacing import Refused, outlined
from fusionkit.identify.replacing.gates import JOINED
from fusionkit.identify.reporting.phrases import in_chinese
from fusionkit.identify.source.files import SourceFile

BY_HAND = ("no replacement can be written for it: {why}", "写不出替换代码：{why}")
INHERITED = (
    "the code is inherited: replace it in {base}, where it is written",
    "代码是继承来的：应在 {base} 处替换",
)
OF_TWO_TENSORS = (
    "one kernel for activation and product, and one for the cat that joins its two inputs: forward moves 7 tensors where"
    " the original moves 5; it pays in training, or with both projections' weights stacked",
    "激活与乘法合为一个 kernel，但需 cat 拼接两个输入：前向读写 7 份张量，原代码 5 份；收益在训练，或先把两个投影的权重合并",
)


def deferred_by_hand(candidate: Candidate, file: SourceFile) -> Candidate:
    """The candidate; where it was recommended and `file` gives no replacement for it, deferred with the reason."""
    if candidate.recommend != "yes":
        return candidate
    if candidate.inherited_from:
        return _deferred(candidate, INHERITED, base=candidate.inherited_from)
    try:
        found = outlined(file, candidate.site)
    except USER_CODE_ERRORS as error:  # a fault of the writer, which must not cost the scan
        return _deferred(
            candidate, BY_HAND, why=f"the writer broke on it ({type(error).__name__}); please report it"
        )
    if isinstance(found, Refused):
        return _deferred(candidate, BY_HAND, why=found.reason)
    if JOINED in found:
        return replace(
            candidate,
            priority=max(candidate.priority, 2),
            reason=OF_TWO_TENSORS[0],
            reason_zh=OF_TWO_TENSORS[1],
        )
    return candidate


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
