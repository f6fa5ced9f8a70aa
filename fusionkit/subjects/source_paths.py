"""Source paths without the machine's own folders."""

from __future__ import annotations

import sysconfig
from pathlib import Path

_ROOTS = tuple(
    sorted({f"{sysconfig.get_path(key)}/" for key in ("purelib", "platlib", "stdlib")}, key=len, reverse=True)
)


def is_installed(path: str) -> bool:
    """Whether `path` lies in the interpreter's library or package folders."""
    return path.startswith(_ROOTS)


def short_path(path: str) -> str:
    """`path` relative to the interpreter's package folders or the working folder, if it is below one."""
    for root in (*_ROOTS, f"{Path.cwd()}/"):
        if path.startswith(root):
            return path[len(root) :]
    return path
