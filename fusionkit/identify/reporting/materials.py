"""All that the report is made of, gathered once: code, replacements, API entries, what a profile shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fusionkit.errors import MisuseError
from fusionkit.identify.candidates import Candidate, ScanReport
from fusionkit.identify.ops import OPS
from fusionkit.identify.profiled.findings import ProfileFindings
from fusionkit.identify.reading import UnreadableError, read_source
from fusionkit.identify.reporting.alike import Group, grouped
from fusionkit.identify.reporting.excerpts import Excerpt, excerpt
from fusionkit.identify.repository import with_repository
from fusionkit.npu.op_docs.entry import ApiEntry
from fusionkit.npu.op_docs.lookup import lookup
from fusionkit.store import sha256_file


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The replacement of one candidate as a unified diff, or in `refused` the reason why there is none.

    `condition`: what the fused branch stands under; `notes`: what to check by eye.
    """

    diff: str = ""
    condition: str = ""
    notes: tuple[str, ...] = ()
    refused: str = ""


Rewriter = Callable[[Candidate], Rewrite]


@dataclass(frozen=True, slots=True)
class Materials:
    """What the report shows. `excerpts`, `unread`: by id; `rewrites`: by id, each candidate's own.

    `unread`: why a candidate's code cannot be shown, "" where its file has changed since the scan. `hashes`: of every
    file that holds a candidate, when the report was begun. `api`: by op, a text where an entry cannot be had.
    """

    scan: ScanReport
    groups: tuple[Group, ...]
    excerpts: Mapping[str, Excerpt]
    unread: Mapping[str, str]
    rewrites: Mapping[str, Rewrite]
    api: Mapping[str, ApiEntry | str]
    hashes: Mapping[str, str]
    profile: ProfileFindings | None = None


def gather_materials(
    scan: ScanReport,
    *,
    wheel: Path | None = None,
    profile: ProfileFindings | None = None,
    rewrite: Rewriter | None = None,
) -> Materials:
    """Read the scanned files again, look every found op up, and have a replacement written for what is not refused.

    The repository around them is searched for torch_npu. Without `rewrite` there are no replacements.
    """
    scan = with_repository(scan)
    excerpts: dict[str, Excerpt] = {}
    unread: dict[str, str] = {}
    hashes: dict[str, str] = {}
    for name in dict.fromkeys(item.file for item in scan.candidates):
        inside = [item for item in scan.candidates if item.file == name]
        _read_one(scan.path(name), inside, excerpts, unread, hashes)
    rewrites = {
        item.id: rewrite(item)
        for item in scan.candidates
        if rewrite is not None and item.recommend != "no" and item.id in excerpts
    }
    codes = {name: (found.fingerprint, _alike(rewrites.get(name))) for name, found in excerpts.items()}
    groups = grouped(scan.candidates, codes)
    return Materials(scan, groups, excerpts, unread, rewrites, _api(scan, wheel), hashes, profile)


def _alike(rewrite: Rewrite | None) -> tuple[object, ...]:
    """What the replacements of one group have in common, beside the code; lines and names differ."""
    if rewrite is None:
        return ()
    notes = tuple(
        note for note in rewrite.notes if not note.startswith("asks the existing switch")
    )  # names a line
    return rewrite.condition, notes, rewrite.refused


def changed_files(materials: Materials) -> tuple[str, ...]:
    """The files with candidates that have other bytes than when the report was begun."""
    found = []
    for name, held in materials.hashes.items():
        path = materials.scan.path(name)
        if not path.is_file() or sha256_file(path) != held:
            found.append(name)
    return tuple(found)


def _read_one(
    path: Path,
    inside: list[Candidate],
    excerpts: dict[str, Excerpt],
    unread: dict[str, str],
    hashes: dict[str, str],
) -> None:
    """Take what is shown of one file; its tree is dropped after that, a package has hundreds."""
    try:
        file = read_source(path)
        hashes[inside[0].file] = sha256_file(path)
    except (UnreadableError, MisuseError) as error:
        unread.update((item.id, str(error)) for item in inside)
        return
    for item in inside:
        found = excerpt(item, file.text, file.tree)
        if found is None:
            unread[item.id] = ""
        else:
            excerpts[item.id] = found


def _api(scan: ScanReport, wheel: Path | None) -> dict[str, ApiEntry | str]:
    """The entry of every op that was found."""
    found: dict[str, ApiEntry | str] = {}
    present = {item.op for item in scan.candidates}
    for op in OPS:
        if op.name in present and op.api:
            name = "NpuFusedAdamW" if op.name == "NpuFusedAdamW" else op.api
            try:
                found[op.name] = lookup(name, wheel=wheel)
            except MisuseError as error:
                found[op.name] = str(error)
    return found
