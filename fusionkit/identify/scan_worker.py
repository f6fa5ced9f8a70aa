"""What one process does of a scan: read files, find sites, judge them; a file that takes too long is given up."""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from fusionkit.errors import USER_CODE_ERRORS
from fusionkit.identify.candidates import Candidate, Existing
from fusionkit.identify.existing import uses_of_file
from fusionkit.identify.inherited import inherited_sites
from fusionkit.identify.judgement import judge
from fusionkit.identify.reading import UnreadableError, read_source
from fusionkit.identify.scan_file import Site, sites_of_file
from fusionkit.identify.source.files import SourceClass, SourceFile
from fusionkit.identify.source.project import consulted
from fusionkit.identify.written import deferred_by_hand

LONGEST_S = 60  # that one file may take


@dataclass(frozen=True, slots=True)
class Inherited:
    """A candidate whose code a class inherits; `base`: the real path of the file that it is written in."""

    candidate: Candidate
    base: str


@dataclass(frozen=True, slots=True)
class FileResult:
    """What one file held; `failed` says in one line why it could not be read. `read_with`: other files consulted.

    What is `inherited` counts only where the file of the base is not scanned itself, which the file alone cannot tell.
    """

    path: Path
    candidates: tuple[Candidate, ...] = ()
    inherited: tuple[Inherited, ...] = ()
    uses: tuple[Existing, ...] = ()
    failed: str = ""
    read_with: tuple[str, ...] = ()


class _TooLongError(Exception):
    pass


def scan_file(path: Path) -> FileResult:
    """The result of one file, which says so where it cannot be read."""
    try:
        with _no_collection(), _at_most(LONGEST_S), consulted() as read_with:
            file = read_source(path)
            found = tuple(deferred_by_hand(judge(site, file), file) for site in sites_of_file(file))
            inherited = tuple(_inherited(site, base, file) for site, base in inherited_sites(file))
            return FileResult(path, found, inherited, uses_of_file(file), read_with=tuple(sorted(read_with)))
    except UnreadableError as error:
        return FileResult(path, failed=str(error))
    except _TooLongError:
        return FileResult(path, failed=f"takes longer than {LONGEST_S} s to read")
    except USER_CODE_ERRORS as error:  # a fault of the rules, which must not cost the other files
        words = (str(error).splitlines() or [""])[0][:200]
        return FileResult(
            path, failed=f"the scan itself broke on it: {type(error).__name__}: {words}; please report it"
        )


def _inherited(site: Site, base: SourceClass, file: SourceFile) -> Inherited:
    told = dataclasses.replace(
        judge(site, base.file),
        inherited_from=f"{base.file.path.name}:{base.name}",
        nth=file.nth(site.symbol.partition(".")[0], site.line),
    )
    return Inherited(deferred_by_hand(told, base.file), os.path.realpath(base.file.path))


def shown_name(path: Path, root: Path) -> str:
    """How a report names a file: from `root` on, else by its whole path."""
    absolute = os.path.abspath(path)
    inside = os.path.relpath(absolute, root)
    name = absolute if inside.startswith("..") else Path(inside).as_posix()
    return os.fsencode(name).decode("utf-8", "backslashreplace")


@contextmanager
def _no_collection() -> Iterator[None]:
    """A parsed file is many objects that all live until it is done: looking for garbage among them is in vain."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    """Interrupt the block after `seconds`, where this is the main thread of a system with timer signals."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
