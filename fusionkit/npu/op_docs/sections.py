"""The sections of a torch_npu docstring, split at their headings; the text is not translated."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Kind of section -> its heading, in display order.
HEADINGS: dict[str, dict[str, str]] = {
    "signature": {"en": "Signature", "zh": "接口原型"},
    "description": {"en": "Description", "zh": "功能描述"},
    "parameters": {"en": "Parameters", "zh": "参数说明"},
    "returns": {"en": "Return values", "zh": "返回值说明"},
    "constraints": {"en": "Constraints", "zh": "约束说明"},
    "products": {"en": "Supported products", "zh": "支持的型号"},
    "versions": {"en": "Supported versions", "zh": "支持的版本"},
    "remarks": {"en": "Remarks", "zh": "说明"},
    "examples": {"en": "Examples", "zh": "调用示例"},
}

# Kind of section -> its headings in the documentation of torch_npu 2.9 to 2.13.
_KINDS: dict[str, tuple[str, ...]] = {
    "signature": ("接口原型", "函数原型"),
    "description": ("功能描述", "功能实现描述", "功能描述实现", "接口说明", "算子功能", "Description"),
    "parameters": ("参数说明", "参数解释", "参数", "输入说明", "输入", "Args", "Arguments", "Parameters"),
    "returns": ("输出说明", "返回值说明", "返回值", "输出", "Returns", "Return"),
    "constraints": ("约束说明", "约束条件", "规格约束", "约束", "输入约束", "Constraints"),
    "products": ("支持的型号", "支持的芯片型号", "硬件支持情况", "产品支持情况"),
    "versions": ("支持的PyTorch版本", "支持版本"),
    "remarks": ("说明", "注意", "注意事项", "Note", "Notes"),
    "examples": ("调用示例", "示例", "示例1", "示例一", "参考样例", "Examples", "Example"),
}
_KIND = {heading: kind for kind, headings in _KINDS.items() for heading in headings}

# Headings that text may follow on the same line; the others also occur as words of sentences.
_WITH_TEXT = frozenset(
    ("功能描述", "参数说明", "输出说明", "返回值说明", "约束说明", "支持的型号", "接口原型", "函数原型")
)
_HEADING = re.compile(
    r"\s*(?:#+\s*)?(?P<heading>[^\s:：（#]+)(?:（[^）]*）)?\s*(?P<colon>[:：]*)\s*(?P<text>.*)"
)
_SIGNATURE = re.compile(r"\s*(torch_npu\s*\.|custom\.|npu_\w+\()")


@dataclass(frozen=True, slots=True)
class DocSection:
    """One kind of section of an entry (a key of HEADINGS) and its text, blank lines around it removed."""

    kind: str
    text: str


def split_sections(text: str) -> tuple[DocSection, ...]:
    """The sections of a docstring in the order of HEADINGS; sections of one kind are joined.

    Before the first heading, lines that look like a call belong to the signature, others to the description. In a
    signature section, text after the call belongs to the parameters.
    """
    sections: dict[str, list[str]] = {}
    kind: str | None = None
    for line in text.expandtabs(4).splitlines():
        heading, rest = _heading(line)
        if heading is not None:
            kind, line = heading, rest
            if not rest:
                sections.setdefault(kind, [])
                continue
        elif kind == "signature" and _is_behind_call(line, sections[kind]):
            kind = "parameters"
        plain = "signature" if _SIGNATURE.match(line) else "description"
        sections.setdefault(kind or plain, []).append(line.rstrip())
    joined = {kind: _trimmed(lines) for kind, lines in sections.items()}
    return tuple(DocSection(kind, joined[kind]) for kind in HEADINGS if joined.get(kind))


def _heading(line: str) -> tuple[str | None, str]:
    """The kind of section that a line opens and the text after the heading, or (None, "")."""
    match = _HEADING.fullmatch(line)
    if match is None or match["heading"] not in _KIND:
        return None, ""
    if match["text"] and not (match["colon"] and match["heading"] in _WITH_TEXT):
        return None, ""
    return _KIND[match["heading"]], match["text"]


def _is_behind_call(line: str, signature: list[str]) -> bool:
    """Whether a line comes after the complete calls of the signature."""
    before = "".join(signature)
    return (
        bool(line.strip())
        and ")" in before
        and before.count("(") == before.count(")")
        and not _SIGNATURE.match(line)
    )


def _trimmed(lines: list[str]) -> str:
    """The text without leading and trailing blank lines, and at most one blank line in a row."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
