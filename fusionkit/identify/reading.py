"""The text of a source file, in whatever encoding it declares, and why it cannot be read where it cannot."""

from __future__ import annotations

import io
import tokenize
import warnings
from pathlib import Path

from fusionkit.identify.source.files import SourceFile

LARGEST_BYTES = 8_000_000  # what is larger is data that happens to be Python


class UnreadableError(Exception):
    """One file that cannot be scanned; the message says why in one line."""


def read_source(path: Path) -> SourceFile:
    """Parse a file without running it. Raises UnreadableError with one line on what is wrong with it."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or error}") from error
    return parse(path, data)


def parse(path: Path, data: bytes) -> SourceFile:
    """Parse the bytes of a file. Raises UnreadableError."""
    if len(data) > LARGEST_BYTES:
        raise UnreadableError(f"larger than {LARGEST_BYTES // 1_000_000} MB")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = io.TextIOWrapper(io.BytesIO(data), encoding, newline=None).read()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escape sequences that Python complains of
            return SourceFile(path, text, data=data)
    except (SyntaxError, ValueError, LookupError) as error:
        raise UnreadableError(_told(error, data)) from error
    except (RecursionError, MemoryError) as error:
        raise UnreadableError("nested too deeply to be parsed") from error


def _told(error: Exception, data: bytes) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not {error.encoding} at byte {error.start}; declare the encoding in the first line"
    if "missing encoding declaration" in str(error):
        return "not utf-8; declare the encoding in the first line"
    if isinstance(error, SyntaxError) and error.lineno:
        python_2 = "print" in (error.text or "") or b"except Exception, " in data
        kind = "Python 2, or" if python_2 else "no Python 3:"
        return f"{kind} a syntax error in line {error.lineno}: {error.msg}"
    return f"no Python source: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
