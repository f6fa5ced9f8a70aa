"""Phase 3: the three registrations as diffs, their names, and the patterns' reachability for the matcher."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusionkit.evidence.gates import Gate
from fusionkit.evidence.phase_records import PhaseRecord
from fusionkit.fusions import registrations
from fusionkit.passes.compiled import pattern_groups
from fusionkit.passes.match_pass import match_pass_for
from fusionkit.passes.registration import LAYOUTS, Edit, apply_edits, layout_of, registration_edits
from fusionkit.passes.registry import pattern_registry, unreachable
from fusionkit.pattern_files.naming import FusionNames, names_of_file
from fusionkit.phases.study import Study
from fusionkit.store import write_text
from fusionkit.verdict import Verdict

_SEARCHED = ("*.py", "*.md", "*.yaml", "*.yml", "*.toml")


@dataclass(frozen=True, slots=True)
class Registration:
    """Result of phase 3: names, edits per layout, reachability rows, written files."""

    study: Study
    names: tuple[FusionNames, ...]
    edits: dict[str, tuple[Edit, ...]]
    rows: tuple[dict[str, Any], ...]
    applied: tuple[Path, ...]
    gates: tuple[Gate, ...]

    def name_rows(self) -> list[dict[str, Any]]:
        """One row per fusion: name, file, class, group, flag."""
        return [
            {
                "name": item.name,
                "file": item.file,
                "class": item.pattern_class,
                "group": item.group,
                "flag": item.flag,
            }
            for item in self.names
        ]

    def diff_text(self, layout: str) -> str:
        """The three edits of a layout as one diff, or a sentence that nothing has to be added."""
        return "".join(edit.diff for edit in self.edits[layout]) or "nothing to add: registered already\n"

    def write(self) -> PhaseRecord:
        """Write the diffs and the evidence."""
        artifacts = []
        for layout in self.edits:
            name = f"artifacts/03_registration_{layout}.diff"
            write_text(self.study.run_dir / name, self.diff_text(layout))
            artifacts.append({"path": name, "kind": "diff"})
        return self.study.write(3, "03_register_pattern", self.gates, artifacts=artifacts)


def register(study: Study, checkout: str | None = None, old_name: str | None = None) -> Registration:
    """Show the registrations; write them only into `checkout`, if it is given.

    `old_name`: a former name of the fusion; it must not occur below the checkout, else the run folder.
    """
    names = tuple(_names(study))
    new = names[0] if study.pattern_file is not None else None
    root = None if checkout is None else Path(checkout)
    edits: dict[str, tuple[Edit, ...]] = {}
    for layout in LAYOUTS.values():
        ours = root if root is not None and layout_of(root) is layout else None
        wanted = [new] if new is not None else names
        edits[layout.name] = tuple(
            edit
            for item in wanted
            for edit in registration_edits(layout, item, ours or _kit_root(layout.name))
        )
    applied = _apply(study, root, edits, new)
    rows = tuple(_reachability(study))
    gates = [_names_gate(study, new), _reachable_gate(rows)]
    if old_name:
        gates.append(_old_name_gate(old_name, root or study.run_dir))
    return Registration(study, names, edits, rows, applied, tuple(gates))


def _names(study: Study) -> list[FusionNames]:
    rows = registrations()
    registered = [
        FusionNames(name) for name in study.patterns if name in rows and rows[name].flag in pattern_registry
    ]
    if study.pattern_file is None:
        return registered
    return [
        names_of_file(study.pattern_file.stem),
        *(item for item in registered if item.name != study.trial),
    ]


def _kit_root(layout: str) -> Path | None:
    """The kit's own source tree, the base of its diff; never written."""
    return Path(__file__).resolve().parents[2] if layout == "fusionkit" else None


def _apply(
    study: Study, root: Path | None, edits: dict[str, tuple[Edit, ...]], new: FusionNames | None
) -> tuple[Path, ...]:
    if root is None or new is None or study.pattern_file is None:
        return ()
    layout = layout_of(root)
    written = apply_edits(list(edits[layout.name]), root)
    target = (root / layout.exports).parent / new.file
    shutil.copyfile(study.pattern_file, target)
    return (*written, target)


def _reachability(study: Study) -> list[dict[str, Any]]:
    groups = pattern_groups(study.config())
    matcher = match_pass_for(groups, study.decompositions)
    return [
        {
            "pattern": name,
            "variants": len(group),
            "matcher entries": matcher.entries(name),
            "registered by": "pattern_file" if name == study.trial else registrations()[name].flag,
            "verdict": str(Verdict.PASS if matcher.entries(name) else Verdict.FAIL),
        }
        for name, group in groups.items()
    ]


def _names_gate(study: Study, new: FusionNames | None) -> Gate:
    if new is None or study.pattern_file is None:
        return Gate("names from one name", Verdict.PASS, "file, class, group and flag of each fusion agree")
    text = study.pattern_file.read_text("utf-8")
    wrong = [word for word in (new.pattern_class, new.group) if word not in text]
    if study.pattern_file.name != new.file:
        wrong.insert(0, new.file)
    if wrong:
        reason = f"{study.pattern_file.name} should hold {', '.join(wrong)} to follow its name '{new.name}'"
        return Gate("names from one name", Verdict.INCONCLUSIVE, reason)
    return Gate("names from one name", Verdict.PASS, f"all derived from '{new.name}'")


def _reachable_gate(rows: Sequence[dict[str, Any]]) -> Gate:
    broken = [
        *unreachable(),
        *(f"{row['pattern']} has no matcher entry" for row in rows if not row["matcher entries"]),
    ]
    if broken:
        return Gate("reachable", Verdict.FAIL, "; ".join(broken))
    if not rows:
        return Gate("reachable", Verdict.INCONCLUSIVE, "no fusion takes part in this run")
    return Gate("reachable", Verdict.PASS, f"{len(rows)} fusions: flag, registry, export and matcher agree")


def _old_name_gate(old_name: str, root: Path) -> Gate:
    files = sorted({path for glob in _SEARCHED for path in root.rglob(glob)})
    holding = [path for path in files if old_name in path.read_text("utf-8", errors="replace")]
    name = "old name gone"
    if holding:
        reason = f"'{old_name}' still occurs in {len(holding)} files, first {holding[0]}"
        return Gate(name, Verdict.FAIL, reason)
    if not files:
        return Gate(name, Verdict.INCONCLUSIVE, f"no file to search below {root}")
    return Gate(name, Verdict.PASS, f"'{old_name}' occurs in none of {len(files)} files")
