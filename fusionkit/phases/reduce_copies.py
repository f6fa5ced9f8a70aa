"""Phase 7: copies in the eager and the compiled run, their neighbouring kernels, and the schemes A, B, C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fusionkit.evidence.gates import Gate
from fusionkit.evidence.phase_records import PhaseRecord
from fusionkit.phases.integrate import COMPILED_PROFILE, EAGER_PROFILE, GivenProfiles
from fusionkit.phases.integration_gates import CPU_NOTE
from fusionkit.phases.study import Study
from fusionkit.profile.copies import CopyReport, analyze_copies
from fusionkit.profile.profile_file import load_profile
from fusionkit.store import read_json, without_keys, write_json
from fusionkit.verdict import Verdict


@dataclass(frozen=True, slots=True)
class CopyStudy:
    """Result of phase 7; `report` is None if phase 6 failed or left no profiles."""

    study: Study
    report: CopyReport | None
    gates: tuple[Gate, ...]

    def kind_rows(self) -> list[dict[str, Any]]:
        """One row per kind of copy: count in the eager and in the compiled run."""
        return [
            {"kind": kind.kind, "eager": kind.baseline_count, "compiled": kind.count}
            for kind in (self.report.kinds if self.report else ())
        ]

    def pair_rows(self) -> list[dict[str, Any]]:
        """One row per kind of copy and neighbours, in the compiled run."""
        return [
            {"previous": pair.previous, "copy": pair.copy, "next": pair.next, "count": pair.count}
            for pair in (self.report.pairs if self.report else ())
        ]

    def scheme_rows(self) -> list[dict[str, Any]]:
        """Schemes A, B, C: do they apply here, and why."""
        return [
            {
                "scheme": item.scheme,
                "what": item.title,
                "when": item.applicability,
                "applies": {True: "yes", False: "no", None: "unknown"}[item.applies],
                "why": item.why,
            }
            for item in (self.report.schemes if self.report else ())
        ]

    def why_empty(self) -> str:
        """The reason why no copy is shown."""
        return "neither run has a copy kernel" if self.report else self.gates[0].reason

    def write(self) -> PhaseRecord:
        """Write the copy report and the evidence."""
        artifacts = []
        if self.report is not None:
            path = "artifacts/07_copies.json"
            write_json(self.study.run_dir / path, without_keys(self.report.to_dict(), "us"))
            artifacts.append({"path": path, "kind": "copies"})
        return self.study.write(7, "07_reduce_copies", self.gates, artifacts=artifacts)


def reduce_copies(study: Study, profiles: GivenProfiles | None = None) -> CopyStudy:
    """Compare the copies of phase 6's two profiles; not run after a failed phase 6.

    `profiles`: those given to phase 6, if any.
    """
    phase6 = study.run_dir / "phases" / "06.json"
    if not phase6.is_file():
        return CopyStudy(
            study, None, (Gate("copies", Verdict.INCONCLUSIVE, "phase 6 was not run in this folder"),)
        )
    before = read_json(phase6)
    if before["verdict"] == str(Verdict.FAIL):
        return CopyStudy(study, None, (Gate("copies", Verdict.INCONCLUSIVE, "not run: phase 6 failed"),))
    if not (study.run_dir / COMPILED_PROFILE).is_file():
        reason = f"phase 6 left no profile: {study.no_values or 'a later layer was not run'}"
        return CopyStudy(study, None, (Gate("copies", Verdict.INCONCLUSIVE, reason),))
    missed = sum((entry["expected_sites"] or 0) - entry["hits"] for entry in before["hits"].values())
    report = analyze_copies(
        load_profile(study.run_dir / COMPILED_PROFILE),
        load_profile(study.run_dir / EAGER_PROFILE),
        missed_sites=missed,
    )
    note = f". {CPU_NOTE}" if study.target == "cpu" and profiles is None else ""
    verdict, reason = report.verdict, report.reason
    if verdict is Verdict.PASS and not any(entry["hits"] for entry in before["hits"].values()):
        verdict, reason = Verdict.INCONCLUSIVE, f"{reason}; no pattern hit, so no fused graph was compared"
    return CopyStudy(study, report, (Gate("copies", verdict, reason + note),))
