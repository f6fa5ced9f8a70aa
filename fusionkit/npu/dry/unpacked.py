"""Whether an unpacked wheel is whole: hashed once, and again only after a file's size or times have changed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from fusionkit.npu.dry.wheel import is_whole
from fusionkit.store import write_text


def is_whole_still(folder: Path, wheel: Path) -> bool:
    """`is_whole`, which reads some 170 MB, unless it has said so of these files before.

    Beside the folder stands what its files were like when they were hashed: size, inode, and times of change.
    """
    record = folder.with_name(f"{folder.name}.hashed")
    state = _state(folder, wheel)
    if state and _recorded(record) == state:
        return True
    if not is_whole(folder, wheel):
        return False
    write_text(record, state)
    return True


def _recorded(record: Path) -> str:
    try:
        return record.read_text("utf-8")
    except OSError:
        return ""


def _state(folder: Path, wheel: Path) -> str:
    """A digest of what the file system says of the wheel and of each module and library; "" where it says nothing."""
    digest = hashlib.sha256()
    try:
        for path in [wheel, *sorted(_checked_files(folder))]:
            of = os.stat(path)
            digest.update(f"{path}\0{of.st_size}\0{of.st_ino}\0{of.st_mtime_ns}\0{of.st_ctime_ns}\n".encode())
    except OSError:
        return ""
    return digest.hexdigest()


def _checked_files(folder: Path) -> list[Path]:
    return [
        Path(place) / name
        for place, _, names in os.walk(folder)
        for name in names
        if name.endswith((".so", ".py", "RECORD"))
    ]
