"""Phase 2: choose the path of each fusion: an existing pattern, else a new file in the run folder."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fusionkit.patterns
from fusionkit.evidence.gates import Gate
from fusionkit.evidence.phase_records import PhaseRecord
from fusionkit.match.explanation.missing import explain_missing
from fusionkit.match.hits import HitReport, report_hits
from fusionkit.match.matching import Matching, matching_of
from fusionkit.match.repairing.synthesis import draft_pattern
from fusionkit.phases.analyze import path_for
from fusionkit.phases.study import Study
from fusionkit.store import sha256_file, write_text
from fusionkit.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Creation:
    """Result of phase 2: one row per fusion, the new files, and the gates."""

    study: Study
    report: HitReport
    rows: tuple[dict[str, Any], ...]
    files: tuple[Path, ...]
    gates: tuple[Gate, ...]

    def file_rows(self) -> list[dict[str, Any]]:
        """The new files with their text."""
        return [
            {"file": str(path.relative_to(self.study.run_dir)), "text": path.read_text("utf-8")}
            for path in self.files
        ]

    def write(self) -> PhaseRecord:
        """Write the evidence."""
        artifacts = [
            {"path": str(path.relative_to(self.study.run_dir)), "kind": "pattern"} for path in self.files
        ]
        return self.study.write(2, "02_create_pattern", self.gates, artifacts=artifacts)


def create(study: Study) -> Creation:
    """Match the patterns of this run in the compile graph; draft a new pattern file for each that misses a site."""
    before = _fingerprint()
    matching = matching_of(study.compile())
    report = report_hits(matching, study.counts)
    rows: list[dict[str, Any]] = []
    files: list[Path] = []
    for name, entry in report.patterns.items():
        taken = f"{len(entry.hits)} of {entry.to_dict()['expected_sites']} sites"
        path = path_for(entry.matches, matching.graphs)
        row = {"pattern": name, "sites taken": taken, "path": path}
        if name == study.trial and study.pattern_file is not None:
            files.append(_copy(study.pattern_file, study.folder("artifacts/patterns")))
            rows.append(row | {"decision": "the file under trial", "file": files[-1].name})
        elif not entry.missing:
            rows.append(row | {"decision": "reuse", "file": None})
        else:
            files.append(_draft(study, matching, name, entry.missing[0].module))
            rows.append(row | {"decision": "new file, drafted from the graph", "file": files[-1].name})
    untouched = _fingerprint() == before
    return Creation(study, report, tuple(rows), tuple(files), (_path_gate(rows), _untouched_gate(untouched)))


def _draft(study: Study, matching: Matching, name: str, module: str) -> Path:
    """Write a pattern file from the graph nodes of the first missed site."""
    explained = explain_missing(matching, name, [module])[0]
    text = draft_pattern(matching.graphs[0], explained.anchor, model=study.model.name, op=name)
    return write_text(study.folder("artifacts/patterns") / f"{study.model.name}_{name}_pattern.py", text)


def _copy(source: Path, folder: Path) -> Path:
    target = folder / source.name
    if source.resolve() != target.resolve():
        shutil.copyfile(source, target)
    return target


def _fingerprint() -> dict[str, str]:
    folder = Path(fusionkit.patterns.__path__[0])
    return {path.name: sha256_file(path) for path in sorted(folder.glob("*.py"))}


def _path_gate(rows: Sequence[dict[str, Any]]) -> Gate:
    if not rows:
        return Gate("path chosen", Verdict.INCONCLUSIVE, "no fusion takes part in this run")
    paths = "; ".join(f"{row['pattern']}: {row['path']}, {row['decision']}" for row in rows)
    return Gate("path chosen", Verdict.PASS, paths)


def _untouched_gate(untouched: bool) -> Gate:
    name = "nothing existing modified"
    if untouched:
        return Gate(name, Verdict.PASS, "the hashes of the kit's pattern files are unchanged")
    return Gate(name, Verdict.FAIL, "a pattern file of the kit changed during the phase")
