"""Text for a terminal or a page: control characters escaped, rounded numbers with their decimal reading."""

from __future__ import annotations

import contextlib
import re
import struct

# Terminal controls (C0 except tab and line feed, DEL, C1), line and paragraph separators, bidirectional controls, and
# lone surrogates, which no encoding accepts. File names can contain all of them.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """`text` with control characters as Python escapes, `\\x1b`; tabs and line feeds stay."""
    return _STEERING.sub(_escape, text)


def visible_json(text: str) -> str:
    """A JSON text with these characters as JSON escapes; its value stays the same."""
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


# A number as Python prints it with at least 13 digits: one that no one has written so.
_LONG_NUMBER = re.compile(r"(?<![\w.])\d+\.\d{12,}(?:e[-+]?\d+)?(?![\w.])")


def with_readings(text: str) -> str:
    """`text` with the decimal number that a float32 was rounded from behind it: `9.999999747378752e-06 (1e-05)`."""
    return _LONG_NUMBER.sub(lambda match: match[0] + _reading(float(match[0])), text)


def _reading(value: float) -> str:
    """The shortest decimal of at most 7 digits that float32 rounds to `value`, in brackets; "" if there is none."""
    for digits in range(1, 8):
        short = f"{value:.{digits}g}"
        with contextlib.suppress(OverflowError):
            if struct.unpack("f", struct.pack("f", float(short)))[0] == value:
                return f" ({float(short)!r})"
    return ""


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
