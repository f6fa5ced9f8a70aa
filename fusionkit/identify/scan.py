"""Scanning many files: in several processes, each file once, none of which can stop the rest."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path

from fusionkit.errors import MisuseError
from fusionkit.identify.candidates import Candidate, Existing, Failed, ScanReport
from fusionkit.identify.existing import with_existing
from fusionkit.identify.gathering import gather, is_modular_source
from fusionkit.identify.ops import OP_NAMES
from fusionkit.identify.scan_cache import keep, kept
from fusionkit.identify.scan_pool import each
from fusionkit.identify.scan_worker import FileResult, scan_file, shown_name

Tell = Callable[[str], None]


def scan(
    targets: Sequence[str | Path],
    *,
    processes: int | None = None,
    cache: bool = True,
    tell: Tell = lambda _: None,
) -> ScanReport:
    """Every candidate in the Python files of files, folders and installed packages, by syntax alone.

    Nothing of the source is imported or run. `processes`: how many read (default: one per core). With `cache`, a file
    is not read again while it, what it was read with and the rules are the same. `tell` hears of the progress. A file
    that cannot be read is listed in `failed`. Raises MisuseError where a target does not exist.
    """
    paths = [path for path in gather(targets) if not is_modular_source(path)]
    root = common_root(targets, paths)
    done: dict[Path, FileResult] = {}
    for path in paths if cache else ():
        known = kept(path)
        if known is not None:
            done[path] = known
    fresh = [path for path in paths if path not in done]
    with closing(_read(fresh, processes or os.cpu_count() or 1)) as results:
        for number, result in enumerate(results, start=1):
            done[result.path] = result
            if cache:
                keep(result)
            if number % 50 == 0 or number == len(fresh):
                tell(f"read {number} of {len(fresh)} files")
    return _report(targets, [done[path] for path in paths], root)


def only(report: ScanReport, ops: Sequence[str]) -> ScanReport:
    """The report with candidates of these ops alone, of all where none is named. Raises MisuseError for other names."""
    unknown = [op for op in ops if op not in OP_NAMES]
    if unknown:
        raise MisuseError(f"{unknown[0]}: no such op; choose among {', '.join(OP_NAMES)}")
    kept_ones = tuple(item for item in report.candidates if not ops or item.op in ops)
    return dataclasses.replace(report, candidates=kept_ones)


def common_root(targets: Sequence[str | Path], paths: Sequence[Path]) -> Path:
    """The folder that file names are told from: the scanned folder's parent, the parent of several files."""
    folders = [path if path.is_dir() else path.parent for path in map(Path, targets) if path.exists()]
    folders = folders or [Path(os.path.commonpath([os.path.abspath(path.parent) for path in paths]))]
    return Path(os.path.commonpath([os.path.abspath(folder) for folder in folders]))


def _read(paths: Sequence[Path], processes: int) -> Generator[FileResult, None, None]:
    with closing(each(scan_file, paths, processes)) as results:
        for path, result in results:
            yield result or FileResult(path, failed="the process that read it died")


def _report(targets: Sequence[str | Path], results: Sequence[FileResult], root: Path) -> ScanReport:
    scanned = {os.path.realpath(result.path) for result in results}
    candidates: list[Candidate] = []
    failed: list[Failed] = []
    uses: list[Existing] = []
    for result in results:
        name = shown_name(result.path, root)
        inherited = [item.candidate for item in result.inherited if item.base not in scanned]
        candidates += [dataclasses.replace(item, file=name) for item in (*result.candidates, *inherited)]
        uses += [dataclasses.replace(use, file=name) for use in result.uses]
        failed += [Failed(name, result.failed)] if result.failed else []
    candidates.sort(key=lambda item: (item.file, item.line, OP_NAMES.index(item.op)))
    return ScanReport(
        paths=tuple(str(target) for target in targets),
        files=len(results),
        candidates=with_existing(candidates, uses),
        failed=tuple(failed),
        uses=tuple(uses),
        root=str(root),
    )
