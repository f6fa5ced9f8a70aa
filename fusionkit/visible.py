"""Text for a terminal or a page, with control characters escaped."""

from __future__ import annotations

import re

# Terminal controls (C0 except tab and line feed, DEL, C1), line and paragraph separators, bidirectional controls, and
# lone surrogates, which no encoding accepts. File names can contain all of them.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """`text` with control characters as Python escapes, `\\x1b`; tabs and line feeds stay."""
    return _STEERING.sub(_escape, text)


def visible_json(text: str) -> str:
    """A JSON text with these characters as JSON escapes; its value stays the same."""
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
