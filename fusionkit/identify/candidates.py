"""What a scan finds: candidates with a judgement, files that could not be read, and the report of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusionkit.identify.rulings import Recommend
from fusionkit.identify.scan_file import Site
from fusionkit.visible import visible

SCHEMA = "fusionkit.scan/1"
_OF_NO_CODE = ("training_backward", "head_sizes")  # told by the table of ops, and by a configuration


@dataclass(frozen=True, slots=True)
class Existing:
    """A use of a torch_npu op, or a switch for one, that stands in the scanned code already.

    `op`: a name of ops.OPS, "" for a switch of no particular op. `guard`: the condition it stands under, "" for none.
    """

    op: str
    file: str
    line: int
    text: str
    guard: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {"op": self.op, "file": self.file, "line": self.line, "text": self.text, "guard": self.guard}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One place that an op could take, judged.

    `line`, `end_line`: of the symbol's class or def; `places`: the lines at which the math ends. `priority`: 1 high to
    3 low. `hazards`: in the order of ops.HAZARDS, training_backward among them. `dispatch`: what decides whether this
    code runs (a key of dispatch.DISPATCHES), "" for nothing. `inherited_from`: the class that the code is written in,
    where this one inherits it. `generated_from`: the modular_*.py that a generated file names in its header.
    `nth`: which of the definitions of its name in the file, branches of an `if` or `try`, the symbol is, from 1 on.
    `head_sizes`: of query and key, and of value, by a configuration's defaults; empty where none tells.
    `proof`: a proof's `to_dict()`, None where none was tried. `replacement`: a replacement's `to_dict()`, None where
    none was asked for.
    """

    op: str
    file: str
    line: int
    end_line: int
    symbol: str
    places: tuple[int, ...]
    hazards: tuple[str, ...]
    recommend: Recommend
    priority: int
    reason: str
    reason_zh: str
    dispatch: str = ""
    inherited_from: str = ""
    generated_from: str = ""
    existing: tuple[Existing, ...] = ()
    nth: int = 1
    head_sizes: tuple[int, ...] = ()
    proof: Mapping[str, Any] | None = None
    replacement: Mapping[str, Any] | None = None

    @property
    def id(self) -> str:
        """Stable name of the candidate: op, file and symbol, one of a kind in a scan."""
        twin = f"#{self.nth}" if self.nth > 1 else ""
        return visible(f"{self.op}:{self.file}:{self.symbol}{twin}")

    @property
    def site(self) -> Site:
        """The place, without hazards that the code of the site does not hold."""
        found = tuple(hazard for hazard in self.hazards if hazard not in _OF_NO_CODE)
        return Site(self.op, self.symbol, self.line, self.end_line, self.places, found)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types: one entry of `fusionkit scan --json`."""
        return {
            "id": self.id,
            "op": self.op,
            "file": self.file,
            "line": self.line,
            "end_line": self.end_line,
            "symbol": self.symbol,
            "places": list(self.places),
            "recommend": self.recommend,
            "priority": self.priority,
            "reason": self.reason,
            "hazards": list(self.hazards),
            "head_sizes": list(self.head_sizes),
            "dispatch": self.dispatch,
            "inherited_from": self.inherited_from,
            "generated_from": self.generated_from,
            "existing": [item.to_dict() for item in self.existing],
            "proof": None if self.proof is None else dict(self.proof),
            "replacement": None if self.replacement is None else dict(self.replacement),
        }


@dataclass(frozen=True, slots=True)
class Failed:
    """A file that could not be scanned, and why in one line."""

    file: str
    reason: str

    def to_dict(self) -> dict[str, str]:
        """Plain JSON types."""
        return {"file": self.file, "reason": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """What a scan of `paths` found. `files`: how many were read; `uses`: torch_npu in the scanned code already.

    `root`: the folder that the names of files are relative to, "" for the current one; it is no part of the JSON form,
    which is the same wherever the code lies.
    """

    paths: tuple[str, ...]
    files: int
    candidates: tuple[Candidate, ...]
    failed: tuple[Failed, ...] = ()
    uses: tuple[Existing, ...] = ()
    root: str = ""

    def path(self, file: str) -> Path:
        """Where a file of the report lies."""
        return Path(self.root, file)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types: what `fusionkit scan --json` prints."""
        return {
            "schema": SCHEMA,
            "paths": list(self.paths),
            "files": self.files,
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "failed": [item.to_dict() for item in self.failed],
            "uses": [item.to_dict() for item in self.uses],
        }
