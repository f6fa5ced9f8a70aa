"""The replacement of every candidate of a scan, each for its own file and class: a diff, or the reason why there is none."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fusionkit.errors import USER_CODE_ERRORS
from fusionkit.identify.candidates import Candidate, ScanReport
from fusionkit.identify.reading import UnreadableError, read_source
from fusionkit.identify.replacing import Refused, Replacement, replace_site
from fusionkit.identify.scan_file import Site
from fusionkit.identify.scan_pool import each
from fusionkit.identify.source.files import SourceFile
from fusionkit.identify.written import INHERITED
from fusionkit.store import write_bytes

LOST = "the process that wrote its replacements died"

Asked = tuple[Path, Path, tuple[tuple[str, Site], ...]]
"""A file, what the names in its diffs are relative to, and the sites by the id of their candidate."""


@dataclass(frozen=True, slots=True)
class Written:
    """One replacement: `patch` is the diff in the bytes that are applied, `diff` its text, both empty if `refused` says why.

    `encoding`: in which `diff` is `patch`. `condition`: what the fused branch asks. `notes`: what to check by eye.
    """

    diff: str = ""
    encoding: str = ""
    condition: str = ""
    notes: tuple[str, ...] = ()
    refused: str = ""
    patch: bytes = b""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types: what `fusionkit scan --json` says under `replacement`."""
        return {
            "diff": self.diff or None,
            "encoding": self.encoding or None,
            "condition": self.condition or None,
            "notes": list(self.notes),
            "refused": self.refused or None,
        }


def replacements(
    scan: ScanReport, *, processes: int | None = None, tell: Callable[[str], None] = lambda _: None
) -> dict[str, Written]:
    """By id, the replacement of every candidate, written anew from the file as it is now; nothing is changed.

    A candidate that is not recommended has none, one whose code is inherited is replaced where that is written.
    """
    found = {item.id: Written(refused=item.reason) for item in scan.candidates if item.recommend == "no"}
    asked: dict[str, list[Candidate]] = {}
    for item in scan.candidates:
        if item.id in found:
            continue
        if item.inherited_from:
            found[item.id] = Written(refused=INHERITED[0].format(base=item.inherited_from))
        else:
            asked.setdefault(item.file, []).append(item)
    files: list[Asked] = [
        (scan.path(name), Path(scan.root), tuple((item.id, item.site) for item in inside))
        for name, inside in asked.items()
    ]
    with closing(_written(files, processes or os.cpu_count() or 1)) as results:
        for number, by_id in enumerate(results, start=1):
            found |= by_id
            if number % 50 == 0 or number == len(files):
                tell(f"wrote the replacements of {number} of {len(files)} files")
    return found


def write_diffs(scan: ScanReport, written: dict[str, Written], folder: Path) -> list[Path]:
    """One .diff for each replacement, in the bytes that `git apply` and `patch -p1` take, named by number and symbol.

    Each is against the file as it is: of two in one file, the other is to be written anew once one is applied.
    """
    paths = []
    for number, item in enumerate(scan.candidates, start=1):
        patch = written[item.id].patch
        if patch:
            name = f"{number:04d}-{item.op}-{Path(item.file).stem}-{item.symbol}.diff"
            paths.append(write_bytes(folder / "".join(_safe(name)), patch))
    return paths


def with_diffs(scan: ScanReport, written: dict[str, Written]) -> ScanReport:
    """The scan, each candidate with its replacement in its JSON form."""
    told = tuple(replace(item, replacement=written[item.id].to_dict()) for item in scan.candidates)
    return replace(scan, candidates=told)


def _safe(name: str) -> Iterator[str]:
    for letter in name:
        yield letter if letter.isalnum() or letter in "-_." else "_"


def _written(files: Sequence[Asked], processes: int) -> Generator[dict[str, Written], None, None]:
    with closing(each(_of_file, files, processes)) as results:
        for (_, _, sites), by_id in results:
            yield {name: Written(refused=LOST) for name, _ in sites} if by_id is None else by_id


def _of_file(asked: Asked) -> dict[str, Written]:
    path, root, sites = asked
    try:
        file = read_source(path)
    except UnreadableError as error:
        return {name: Written(refused=str(error)) for name, _ in sites}
    except USER_CODE_ERRORS as error:
        return {name: _broken(error) for name, _ in sites}
    return {name: _of_site(file, site, root) for name, site in sites}


def _of_site(file: SourceFile, site: Site, root: Path) -> Written:
    try:
        found: Replacement | Refused = replace_site(file, site, root)
    except USER_CODE_ERRORS as error:  # a fault of the writer, which must not cost the others
        return _broken(error)
    if isinstance(found, Refused):
        return Written(refused=found.reason)
    patch = found.patch
    return Written(patch.diff, patch.encoding, found.condition, found.notes, patch=patch.data)


def _broken(error: BaseException) -> Written:
    return Written(
        refused=f"the writer of replacements broke on it: {type(error).__name__}; please report it"
    )
