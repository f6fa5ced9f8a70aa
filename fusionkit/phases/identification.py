"""Phase 11: code that torch_npu's fused ops can replace, and the user's choice. The source is not changed."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fusionkit.evidence.gates import Gate
from fusionkit.evidence.phase_records import PhaseRecord, write_phase
from fusionkit.identify.candidates import ScanReport
from fusionkit.identify.confirmation import FILE_NAME, write_confirmation
from fusionkit.identify.profiled.assess import assess_profile
from fusionkit.identify.profiled.findings import ProfileFindings
from fusionkit.identify.profiled.judged import with_profile
from fusionkit.identify.proofs import with_proofs
from fusionkit.identify.report import language, materials_of, render
from fusionkit.identify.reporting.alike import Group
from fusionkit.identify.reporting.checklist import checklist
from fusionkit.identify.reporting.materials import Materials, changed_files
from fusionkit.identify.reporting.ordering import ordered
from fusionkit.identify.reporting.summary import reason_of, summary_rows
from fusionkit.identify.reporting.words import Lang, say
from fusionkit.identify.scan import scan
from fusionkit.store import without_keys, write_json, write_text
from fusionkit.verdict import Verdict

NOTEBOOK = "11_identify_fusion_ops"
REPORT = "artifacts/11_report.md"
SCAN = "artifacts/11_scan.json"


@dataclass(frozen=True, slots=True)
class Identification:
    """Result of phase 11: the scan, the materials of its report, and the run folder."""

    scan: ScanReport
    materials: Materials
    lang: Lang
    proved: bool
    run_dir: Path

    def summary_rows(self) -> list[dict[str, Any]]:
        """One row for each common op."""
        return summary_rows(self.materials, self.lang)

    def candidate_rows(self) -> list[dict[str, Any]]:
        """One row for each group of candidates with identical code, in the order of the report."""
        return [self._row(number, group) for number, group in self._numbered()]

    def replacement_rows(self) -> list[dict[str, str]]:
        """The diff of each replacement, under the name of its candidate."""
        return [
            {"candidate": f"{number}. {group.first.op} {group.first.symbol}", "diff": rewrite.diff}
            for number, group in self._numbered()
            if (rewrite := self.materials.rewrites.get(group.first.id)) is not None and rewrite.diff
        ]

    def refused_rows(self) -> list[dict[str, Any]]:
        """Candidates without a replacement, each with the reason."""
        rows = []
        for number, group in self._numbered():
            rewrite = self.materials.rewrites.get(group.first.id)
            why = reason_of(group.first, self.lang) if rewrite is None else rewrite.refused
            if why and (rewrite is not None or group.first.recommend == "no"):
                rows.append({"#": number, "op": group.first.op, "symbol": group.first.symbol, "why": why})
        return rows

    def sequence_rows(self) -> list[dict[str, Any]]:
        """The kernel sequences of the profile, those of a fused op first."""
        findings: ProfileFindings | None = self.materials.profile
        return [
            {
                "kernels": ", ".join(item.kernels),
                "op": item.op or None,
                "count": item.count,
                "us": item.us,
                "bound": item.bound,
                "ground": item.ground,
                "saved at most, us": item.saved_us,
            }
            for item in ((*findings.known, *findings.frequent) if findings else ())
        ]

    def order_rows(self) -> list[dict[str, Any]]:
        """The suggested order: high gain and low risk first."""
        return [
            {"order": place, **self._row(number, group)}
            for place, (number, group) in enumerate(ordered(self.materials.groups, self.materials), 1)
        ]

    def checklist_rows(self) -> list[dict[str, Any]]:
        """The decision checklist; each answer is derived from the scan, the proofs and the choice."""
        boxes = checklist(self.materials, changed_files(self.materials), self.lang)
        return [
            {"done": box.ticked, "question": box.question, "evidence": box.evidence.replace("`", "")}
            for box in boxes
        ]

    def choices(self) -> dict[str, tuple[str, ...]]:
        """Selectable groups: label -> candidate ids. Groups with recommendation "no" are left out."""
        return {
            f"{number}. {group.first.op} {group.first.symbol} x{len(group.members)}"
            f" ({say(self.lang, group.first.recommend)})": tuple(item.id for item in group.members)
            for number, group in self._numbered()
            if group.first.recommend != "no"
        }

    def choice_rows(self, chosen: Sequence[str]) -> list[dict[str, Any]]:
        """One row per selectable group, then one per chosen id outside `choices`."""
        choices = self.choices()
        reasons = {item.id: reason_of(item, self.lang) for item in self.scan.candidates}
        offered = {item for ids in choices.values() for item in ids}
        rows: list[dict[str, Any]] = [
            {
                "chosen": set(ids) <= set(chosen),
                "candidate": label,
                "reason": reasons[ids[0]],
                "ids": list(ids),
            }
            for label, ids in choices.items()
        ]
        others = [item for item in chosen if item not in offered]
        return rows + [
            {"chosen": True, "candidate": None, "reason": reasons.get(item), "ids": [item]} for item in others
        ]

    def write(self, chosen: Sequence[str] = (), confirmed_by: str = "", despite: str = "") -> PhaseRecord:
        """Write report, scan and evidence; write the confirmation file if any id is `chosen`.

        `despite`: the reason for choosing a candidate that is not recommended. Raises MisuseError for an id that is
        not in the report, and for a not recommended one if `despite` is empty.
        """
        changed = changed_files(self.materials)
        report = write_text(self.run_dir / REPORT, render(self.materials, lang=self.lang, changed=changed))
        write_json(self.run_dir / SCAN, without_keys(self.scan.to_dict(), "seconds"))
        artifacts = [{"path": REPORT, "kind": "report"}, {"path": SCAN, "kind": "scan"}]
        confirmation = self.run_dir / "artifacts" / FILE_NAME
        confirmation.unlink(missing_ok=True)  # a confirmation of an earlier report is not valid for this one
        if chosen:
            when = datetime.now(UTC).isoformat(timespec="seconds")
            who = confirmed_by or getpass.getuser()
            write_confirmation(
                confirmation, report, chosen, confirmed_by=who, confirmed_at=when, despite=despite
            )
            artifacts.append({"path": f"artifacts/{FILE_NAME}", "kind": "confirmation"})
        record = PhaseRecord(
            phase=11,
            notebook=NOTEBOOK,
            subject=", ".join(self.scan.paths),
            target="cpu",
            window="none",
            dtype="float32, bfloat16" if self.proved else "none",
            gates=identification_gates(self.scan, self.proved, changed, chosen),
            artifacts=artifacts,
        )
        write_phase(self.run_dir, record)
        return record

    def _numbered(self) -> list[tuple[int, Group]]:
        return list(enumerate(self.materials.groups, 1))

    def _row(self, number: int, group: Group) -> dict[str, Any]:
        item = group.first
        return {
            "#": number,
            "op": item.op,
            "symbol": item.symbol,
            "recommend": say(self.lang, item.recommend),
            "place": f"{item.file}:{item.line}" + (f" (+{len(group.others)})" if group.others else ""),
            "reason": reason_of(item, self.lang),
            "hazards": list(item.hazards) or None,
            "verdict": None if item.proof is None else str(item.proof["verdict"]),
        }


def identify_fusion_ops(
    *,
    paths: Sequence[str],
    lang: str = "zh",
    root_dir: str | None = None,
    profile_file: str | None = None,
    prove: bool = False,
    run_dir: str = "evidence/interactive",
) -> Identification:
    """Scan files, folders and packages; with `prove`, run each replacement beside its original on target cpu.

    `paths` are relative to `root_dir` if it is given. Raises MisuseError for an unusable path, profile or language.
    """
    chosen = language(lang)
    targets = [_target(path, root_dir) for path in paths]
    report = scan(targets)
    profile = None if not profile_file else assess_profile(Path(profile_file))
    if profile is not None:
        report = with_profile(report, profile)
    if prove:
        report = with_proofs(report)
    folder = Path(run_dir)
    folder.mkdir(parents=True, exist_ok=True)
    materials = materials_of(report, profile=profile)
    return Identification(materials.scan, materials, chosen, prove, folder)


def _target(path: str, root_dir: str | None) -> str:
    """`path` below `root_dir` if that exists, else `path` (or package name) unchanged."""
    inside = None if root_dir is None else Path(root_dir) / path
    return str(inside) if inside is not None and inside.exists() else path


def identification_gates(
    scan: ScanReport, proved: bool, changed: Sequence[str], chosen: Sequence[str]
) -> tuple[Gate, ...]:
    """The gates of a scan. `changed`: files whose hash changed; `chosen`: ids of the confirmed candidates."""
    return (_read(scan), _proofs(scan, proved), _unchanged(changed), _confirmed(scan, chosen))


def _read(scan: ScanReport) -> Gate:
    counts = f"{scan.files} files, {len(scan.candidates)} candidates"
    if not scan.files:
        return Gate("every file read", Verdict.INCONCLUSIVE, "there was no file to read")
    if scan.failed:
        first = scan.failed[0]
        why = f"{len(scan.failed)} of {counts} could not be read, first {first.file}: {first.reason}"
        return Gate("every file read", Verdict.INCONCLUSIVE, why)
    return Gate("every file read", Verdict.PASS, counts)


def _proofs(scan: ScanReport, proved: bool) -> Gate:
    name = "recommended replacements proved"
    if not proved:
        return Gate(name, Verdict.INCONCLUSIVE, "not asked for: set prove")
    wanted = [item for item in scan.candidates if item.recommend == "yes"]
    passed = [item for item in wanted if item.proof is not None and item.proof["verdict"] == "PASS"]
    refused = sum(item.proof is not None and item.proof["verdict"] == "FAIL" for item in scan.candidates)
    counts = f"{len(passed)} of {len(wanted)} proved; {refused} refused by their proof and not recommended"
    whole = wanted and len(passed) == len(wanted)
    return Gate(name, Verdict.PASS if whole else Verdict.INCONCLUSIVE, counts)


def _unchanged(changed: Sequence[str]) -> Gate:
    name = "no model code changed"
    if changed:
        return Gate(name, Verdict.FAIL, f"{len(changed)} files changed meanwhile, first {changed[0]}")
    return Gate(name, Verdict.PASS, "the hashes of all files with a candidate are unchanged")


def _confirmed(scan: ScanReport, chosen: Sequence[str]) -> Gate:
    """Always PASS: stage one stops here, and stage two refuses to run without a confirmation."""
    counts = f"{len(chosen)} of {len(scan.candidates)} candidates confirmed"
    waits = "no candidate is confirmed yet; stage two refuses until the report is"
    return Gate("stopped for confirmation", Verdict.PASS, counts if chosen else waits)
