"""Look up a name of torch_npu's API, or list the names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fusionkit.encoding import Result
from fusionkit.errors import MisuseError
from fusionkit.npu.op_docs.entry import ApiEntry
from fusionkit.npu.op_docs.index import NOTHING, ApiIndex, IndexEntry, read_index
from fusionkit.npu.op_docs.kit import kit_names, kit_op
from fusionkit.npu.op_docs.notes import notes_on
from fusionkit.npu.op_docs.online import FOLDER
from fusionkit.npu.op_docs.package import find_package
from fusionkit.npu.op_docs.sections import split_sections

_PREFIXES = ("torch.ops.npu.", "torch_npu.", "npu::")


def lookup(name: str, *, wheel: Path | None = None) -> ApiEntry:
    """The entry of an op, class or function ("npu_rms_norm", "torch_npu.npu_rms_norm", "NpuFusedAdamW").

    Read from `wheel` (a .whl file or an unpacked one), else from the torch_npu of `find_package`; if there is none, or
    it lacks the name, the entry has the kit's information only. Raises MisuseError with similar names for an unknown
    name.
    """
    index = find_index(wheel)
    entries = index.entries if index else {}
    full = _full_name(name, entries)
    if full not in entries:
        full = _full_name(name, kit_names())
        if full not in kit_names():
            raise MisuseError(_unknown(name, index))
    entry = entries.get(full, NOTHING)
    return ApiEntry(
        name=full,
        package=str(index.path) if index else "",
        version=index.version if index else "",
        where=entry.doc.where,
        superseded=entry.doc.superseded,
        signature=entry.signature,
        schemas=entry.schemas,
        sections=split_sections(entry.doc.text),
        kit=kit_op(full),
        notes=notes_on(full),
    )


def find_index(wheel: Path | None = None) -> ApiIndex | None:
    """The index of the torch_npu of `find_package`; None without one."""
    path = find_package(wheel)
    return None if path is None else read_index(path)


def _full_name(name: str, entries: Iterable[str]) -> str:
    """The full name below torch_npu: `name` itself, or the only one that ends in it."""
    bare = name.strip().removesuffix("()").removesuffix(".default")
    for prefix in _PREFIXES:
        bare = bare.removeprefix(prefix)
    if bare in entries:
        return bare
    ending = [known for known in entries if known.rpartition(".")[2] == bare]
    return ending[0] if len(ending) == 1 else bare


def _unknown(name: str, index: ApiIndex | None) -> str:
    known = {*(index.entries if index else ()), *kit_names()}
    bare = name.strip().removeprefix("torch_npu.")
    near = difflib.get_close_matches(bare, known, n=5, cutoff=0.6)
    where = (
        f"torch_npu {index.version} ({index.path})"
        if index
        else "the kit, and there is no torch_npu wheel here"
    )
    way_out = f"near names: {', '.join(near)}" if near else f"see `fusionkit api list`, or {FOLDER}/torch_npu"
    return f"{name}: no such name in {where}; {way_out}"


@dataclass(frozen=True, slots=True)
class ApiName(Result):
    """A listed name: whether the wheel documents it, number of the kit's notes, one-line summary."""

    name: str
    documented: bool
    notes: int
    summary: str


def list_names(index: ApiIndex | None, prefix: str = "") -> tuple[ApiName, ...]:
    """The package's names that start with `prefix`, sorted; without a package the kit's names."""
    entries = index.entries if index else dict.fromkeys(kit_names(), NOTHING)
    return tuple(
        ApiName(name, bool(entry.doc.text.strip()), len(notes_on(name)), _summary(entry))
        for name, entry in entries.items()
        if name.startswith(prefix.removeprefix("torch_npu."))
    )


def _summary(entry: IndexEntry) -> str:
    """The first line of the entry's description."""
    description = next((s.text for s in split_sections(entry.doc.text) if s.kind == "description"), "")
    return next((line.strip() for line in description.splitlines() if line.strip()), "")
