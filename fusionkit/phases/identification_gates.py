"""The exit gates of phase 11: files read, replacements proved, model code unchanged, stopped for confirmation."""

from __future__ import annotations

from collections.abc import Sequence

from fusionkit.evidence.gates import Gate
from fusionkit.identify.candidates import ScanReport
from fusionkit.verdict import Verdict


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
