"""Whether a pattern file can be read and parsed; nothing of it is run, and torch is not needed."""

from __future__ import annotations

import ast
from pathlib import Path

from fusionkit.errors import MisuseError


def check_pattern_file(path: Path) -> None:
    """Read and parse the file without running it.

    Raises MisuseError with file and line if it is missing, unreadable or not Python.
    """
    try:
        text = path.read_text("utf-8")
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            raise MisuseError(f"{path} line {line}: holds a NUL byte; mend the pattern file")
        ast.parse(text, filename=str(path))
    except OSError as error:
        raise MisuseError(
            f"{path}: cannot read ({error.strerror or error}); give the path of a pattern file"
        ) from error
    except SyntaxError as error:
        raise MisuseError(
            f"{path} line {error.lineno}: syntax error ({error.msg}); mend the pattern file"
        ) from error
    except (UnicodeDecodeError, ValueError) as error:
        raise MisuseError(f"{path}: not UTF-8 Python source ({error}); mend the pattern file") from error
