"""A replacement as bytes of its file's own encoding and line ends: the patch that `git apply` and `patch -p1` take."""

from __future__ import annotations

import codecs
import difflib
import io
import os
import re
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass

from fusionkit.identify.replacing.branch import Edit
from fusionkit.identify.replacing.replacement import Unfit
from fusionkit.identify.source.files import SourceFile

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_QUOTED = re.compile(rb'["\\\x00-\x1f\x7f]')
_NO_END = b"\\ No newline at end of file\n"


@dataclass(frozen=True, slots=True)
class Patch:
    """`data`: the unified diff as it is applied. `encoding`: of the lines in it. `new_text`: what it makes of the file."""

    data: bytes
    encoding: str
    new_text: str

    @property
    def diff(self) -> str:
        """The diff as text, line ends as in the file; the names in its head are read as UTF-8."""
        head, mark, body = self.data.partition(b"\n@@")
        return head.decode("utf-8", "backslashreplace") + (mark + body).decode(self.encoding)


def patch_of(file: SourceFile, name: str, edits: Sequence[Edit], after: int, head: Sequence[str]) -> Patch:
    """The diff of a file's bytes, named a/`name` and b/`name`; lines that stay are the bytes that they are.

    `after`: the line (from 1) that `head` stands behind, 0 for the start. Raises Unfit where the new lines cannot be
    written in the file's encoding.
    """
    told = file.text.encode() if file.data is None else file.data
    encoding, mark = _encoding(told)
    old = file.text.encode(encoding) if file.data is None else file.data
    lines = _replaced(_LINE.findall(old[len(mark) :].decode(encoding)), edits, after, head)
    try:
        new = mark + "".join(lines).encode(encoding)
    except UnicodeEncodeError as error:
        raise Unfit(f"the replacement cannot be written in the file's encoding, {encoding}") from error
    new_text = _universal("".join(lines))
    if _universal(new[len(mark) :].decode(encoding)) != new_text:
        raise Unfit(f"the replacement does not come back from the file's encoding, {encoding}")
    return Patch(_unified(old, new, name), encoding, new_text)


def _encoding(data: bytes) -> tuple[str, bytes]:
    """(the encoding of a source, the mark at its start)."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return ("utf-8", codecs.BOM_UTF8) if encoding == "utf-8-sig" else (encoding, b"")


def _universal(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _replaced(lines: list[str], edits: Sequence[Edit], after: int, head: Sequence[str]) -> list[str]:
    """The lines of the new text. What is new ends as the line at its place does, what is kept as it did."""
    made = list(lines)
    for edit in sorted(edits, key=lambda item: item.first, reverse=True):
        old = lines[edit.first - 1 : edit.last]
        fused, kept = edit.lines[: -len(old)], edit.lines[-len(old) :]
        end = _end_of(old[0]) or _usual_end(lines)
        ends = [end] * len(fused) + [_end_of(line) for line in old]
        made[edit.first - 1 : edit.last] = [
            line.removesuffix("\n") + told for line, told in zip((*fused, *kept), ends, strict=True)
        ]
    end = _usual_end(lines[max(after - 1, 0) :])
    made[after:after] = [line.removesuffix("\n") + end for line in head]
    return made


def _end_of(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]


def _usual_end(lines: Sequence[str]) -> str:
    """The end of the first line that has one."""
    return next((end for line in lines if (end := _end_of(line))), "\n")


def _unified(old: bytes, new: bytes, name: str) -> bytes:
    lines = difflib.diff_bytes(
        difflib.unified_diff, _split(old), _split(new), _shown(f"a/{name}"), _shown(f"b/{name}")
    )
    return b"".join(line if line.endswith(b"\n") else line + b"\n" + _NO_END for line in lines)


def _split(data: bytes) -> list[bytes]:
    """Lines as patch and git count them: a lone carriage return ends none."""
    return io.BytesIO(data).readlines()


def _shown(name: str) -> bytes:
    """A name in the head of a diff as git writes it: in quotes where it has to be, a tab after a blank."""
    raw = os.fsencode(name)
    if _QUOTED.search(raw):
        return b'"' + _QUOTED.sub(_escape, raw) + b'"'
    return raw + b"\t" if b" " in raw else raw


def _escape(found: re.Match[bytes]) -> bytes:
    byte = found[0]
    return b"\\" + byte if byte in b'"\\' else b"\\%03o" % byte[0]
