"""Phase 5: every expected site is a hit, already fused, skipped with a reason, or a miss with cause and node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusionkit.evidence.gates import Gate
from fusionkit.evidence.hits_artifact import claim_hits, write_hits
from fusionkit.evidence.records import PhaseRecord
from fusionkit.match.explain import SiteExplanation
from fusionkit.match.hits import HitReport, PatternHits, report_hits
from fusionkit.match.matching import matching_of
from fusionkit.match.missing import explain_missing
from fusionkit.passes.compiled import Compiled
from fusionkit.passes.hits import SiteMatch
from fusionkit.phases.study import Study
from fusionkit.store import write_json
from fusionkit.verdict import Verdict

_TOLD = "variant, or why not"
_NONE_COUNTED = "no site was counted, so none can be missed"


@dataclass(frozen=True, slots=True)
class MismatchReport:
    """What phase 5 found: the state of every site, and an explanation for each miss."""

    study: Study
    compiled: Compiled
    report: HitReport
    explained: Mapping[str, tuple[SiteExplanation, ...]]
    gates: tuple[Gate, ...]

    def site_rows(self) -> list[dict[str, Any]]:
        """One row per site, misses first: pattern, state, module, source, anchor, variant or reason."""
        rows: list[dict[str, Any]] = []
        for name in self.report.patterns:
            rows += [_missed_row(name, item) for item in self.explained.get(name, ())]
        for name, entry in self.report.patterns.items():
            rows += [_found_row(name, match) for match in entry.matches if match.status != "refused"]
            rows += [
                {
                    "pattern": name,
                    "status": "already_fused",
                    "module": site.module,
                    "source": site.source,
                    "anchor": site.anchor,
                    _TOLD: site.reason,
                }
                for site in entry.fused
            ]
        return rows

    def cause_rows(self) -> list[dict[str, Any]]:
        """One row per cause of every missed site."""
        return [
            {
                "pattern": name,
                "module": item.module,
                "variant": item.pattern,
                "type": cause.type,
                "pattern node": cause.pattern_node,
                "pattern source": cause.pattern_source,
                "graph node": cause.graph_node,
                "graph source": cause.graph_source,
                "expected": cause.expected,
                "actual": cause.actual,
                "fix": cause.fix,
            }
            for name, items in self.explained.items()
            for item in items
            for cause in item.causes
        ]

    def why_no_cause(self) -> str:
        """Why there is no cause to show: no site was missed, or none was counted."""
        missed = sum(len(entry.missing) for entry in self.report.patterns.values())
        counted = sum(
            self.study.counts[n].expected or 0 for n in self.report.patterns if n in self.study.counts
        )
        if missed:
            return f"{missed} sites were missed, and no cause was found for any"
        if any(entry.verdict is Verdict.FAIL for entry in self.report.patterns.values()):
            return "no place is known to be missed; the gates say what does not add up"
        return f"no site was missed: {counted} of {counted} are accounted for" if counted else _NONE_COUNTED

    def write(self) -> PhaseRecord:
        """Write hits, graphs, explanations and the evidence."""
        artifacts = write_hits(self.study.run_dir, "05_hits", self.compiled, self.report)
        path = "artifacts/05_explained.json"
        explained = {name: [item.to_dict() for item in items] for name, items in self.explained.items()}
        write_json(self.study.run_dir / path, explained)
        artifacts.append({"path": path, "kind": "explanation"})
        return self.study.write(
            5, "05_debug_mismatch", self.gates, hits=claim_hits(self.report), artifacts=artifacts
        )


def debug_mismatch(study: Study) -> MismatchReport:
    """Compile the whole model, join hits with counted sites, explain every miss."""
    compiled = study.compile()
    matching = matching_of(compiled)
    report = report_hits(matching, study.counts)
    explained = {
        name: tuple(explain_missing(matching, name, [site.module for site in entry.missing]))
        for name, entry in report.patterns.items()
        if entry.missing
    }
    gates = tuple(_gate(entry, explained.get(name, ())) for name, entry in report.patterns.items())
    return MismatchReport(study, compiled, report, explained, gates or (_nothing(),))


def _gate(entry: PatternHits, explained: Sequence[SiteExplanation]) -> Gate:
    name = f"sites of {entry.pattern}"
    if not entry.missing:
        return Gate(name, entry.verdict, entry.reason)
    open_questions = [item for item in explained if not item.causes or item.causes[0].type == "unexplained"]
    if open_questions or len(explained) != len(entry.missing):
        places = ", ".join(item.module for item in open_questions[:3])
        return Gate(name, Verdict.FAIL, f"{entry.reason}; no cause found for: {places}")
    if entry.join is not None and entry.join.surplus:
        return Gate(name, Verdict.FAIL, entry.reason)
    first = explained[0].causes[0]
    return Gate(
        name,
        Verdict.INCONCLUSIVE,
        f"{entry.reason}; {first.type} at {first.graph_node}: pattern {first.expected}, graph {first.actual}",
    )


def _nothing() -> Gate:
    return Gate("sites", Verdict.INCONCLUSIVE, "no fusion takes part in this run")


def _found_row(name: str, match: SiteMatch) -> dict[str, Any]:
    return {
        "pattern": name,
        "status": match.status,
        "module": match.module,
        "source": match.source,
        "anchor": match.anchor,
        _TOLD: match.reason or match.variant,
    }


def _missed_row(name: str, item: SiteExplanation) -> dict[str, Any]:
    told = "; ".join(f"{cause.type}: pattern {cause.expected}, graph {cause.actual}" for cause in item.causes)
    return {
        "pattern": name,
        "status": "miss",
        "module": item.module,
        "source": item.source,
        "anchor": item.anchor,
        _TOLD: told,
    }
