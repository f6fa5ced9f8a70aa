"""Phase 5: the status of every counted site: hit, already fused, skipped with a reason, or miss with causes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusionkit.capture.aot import decomposition_table
from fusionkit.evidence.gates import Gate
from fusionkit.evidence.hits_artifact import claim_hits, from_file, write_hits
from fusionkit.evidence.phase_records import PhaseRecord
from fusionkit.match.explanation.explain import SiteExplanation
from fusionkit.match.explanation.isolation import isolate
from fusionkit.match.explanation.missing import explain_missing, explain_pattern
from fusionkit.match.explanation.variants import Variant
from fusionkit.match.hits import HitReport, PatternHits, report_hits
from fusionkit.match.matching import Matching
from fusionkit.match.site_joins import FusedSite
from fusionkit.passes.site_match import SiteMatch
from fusionkit.phases.study import Study
from fusionkit.store import write_json
from fusionkit.verdict import Verdict
from fusionkit.visible import with_readings

_OUTCOME = "variant or reason"  # column: the variant of a hit; of any other site the reason or the causes
_NONE_COUNTED = "no site was counted, so none can be missed"


@dataclass(frozen=True, slots=True)
class MismatchReport:
    """Result of phase 5: the status of every site, and the explanation of every miss.

    `explained`: pattern -> its missed sites; for a pattern without counted sites, its near misses.
    """

    study: Study
    matching: Matching
    report: HitReport
    explained: Mapping[str, tuple[SiteExplanation, ...]]
    gates: tuple[Gate, ...]

    def site_rows(self) -> list[dict[str, Any]]:
        """One row per site, misses first: pattern, status, module, source, anchor, variant or reason."""
        rows: list[dict[str, Any]] = []
        for name in self.report.patterns:
            state = "miss" if self.report.patterns[name].missing else "near miss"
            for item in self.explained.get(name, ()):
                causes = ", ".join(dict.fromkeys(cause.type for cause in item.causes)) or "no cause found"
                rows.append(_row(name, state, item, f"{item.pattern}: {causes}"))
        for name, entry in self.report.patterns.items():
            rows += [
                _row(name, match.status, match, match.reason or match.variant)
                for match in entry.matches
                if match.status != "refused"
            ]
            rows += [_row(name, "already_fused", site, site.reason) for site in entry.fused]
        return rows

    def prefix_rows(self) -> list[dict[str, Any]]:
        """Prefix isolation, for each pattern with misses, of the variant that is nearest to most of its missed sites.

        One row per prefix: its last call, number of nodes, hits in the graphs, and a mark at the first loss of hits.
        """
        return [
            row
            for name, items in self.explained.items()
            if items
            for row in _prefixes(name, items, self.matching, self.report.patterns[name])
        ]

    def why_no_cause(self) -> str:
        """The reason why no cause is shown: no site was missed, or none was counted."""
        missed = sum(len(entry.missing) for entry in self.report.patterns.values())
        counted = sum(
            self.study.counts[n].expected or 0 for n in self.report.patterns if n in self.study.counts
        )
        if missed:
            return f"{missed} sites were missed, and no cause was found for any"
        if any(entry.verdict is Verdict.FAIL for entry in self.report.patterns.values()):
            return "no missed site is known; the reasons of the gates name the disagreement between hits and sites"
        return (
            f"no site was missed: all {counted} are hit, already fused or skipped"
            if counted
            else _NONE_COUNTED
        )

    def write(self) -> PhaseRecord:
        """Write hits, graphs, explanations and the evidence."""
        files = from_file(self.study.config(), self.matching.groups)
        artifacts = write_hits(
            self.study.run_dir, "05_hits", self.matching.before, self.matching.after, files, self.report
        )
        path = "artifacts/05_explained.json"
        explained = {
            name: [item.to_dict() | {"rows": [row.to_dict() for row in item.rows]} for item in items]
            for name, items in self.explained.items()
        }
        write_json(self.study.run_dir / path, explained)
        artifacts.append({"path": path, "kind": "explanation"})
        return self.study.write(
            5, "05_debug_mismatch", self.gates, hits=claim_hits(self.report), artifacts=artifacts
        )


def debug_mismatch(study: Study) -> MismatchReport:
    """Compile the model, or read its capsule; assign hits to counted sites, and explain every miss.

    Raises MisuseError for a capsule without a graph in the study's window.
    """
    matching = study.match()
    report = report_hits(matching, study.counts)
    explained = {
        name: explanations
        for name, entry in report.patterns.items()
        if (explanations := _explanations(matching, name, entry))
    }
    gates = tuple(_gate(entry, explained.get(name, ())) for name, entry in report.patterns.items())
    gates = gates or (Gate("sites", Verdict.INCONCLUSIVE, "no fusion takes part in this run"),)
    gates = tuple(_of_origin(gate, matching.capture.origin) for gate in gates)
    return MismatchReport(study, matching, report, explained, gates)


def _explanations(matching: Matching, name: str, entry: PatternHits) -> tuple[SiteExplanation, ...]:
    """The explanation of each missed site; of the near misses if no site was counted by module."""
    if entry.join is None:
        return explain_pattern(matching, name, {}).missed
    if not entry.missing:
        return ()
    return tuple(explain_missing(matching, name, [site.module for site in entry.missing]))


def _of_origin(gate: Gate, origin: str) -> Gate:
    """PASS requires graphs of torch.compile; graphs of another origin make it INCONCLUSIVE."""
    if origin == "torch.compile" or gate.verdict is not Verdict.PASS:
        return gate
    reason = f"{gate.reason}; the capsule's graphs come from {origin}, not from torch.compile"
    return Gate(gate.name, Verdict.INCONCLUSIVE, reason)


def _prefixes(
    name: str, items: Sequence[SiteExplanation], matching: Matching, entry: PatternHits
) -> list[dict[str, Any]]:
    nearest = Counter(item.pattern for item in items).most_common(1)[0][0]
    chosen = [item for item in matching.groups[name] if item.name() == nearest]
    if not chosen:
        return []
    trace = matching.tracer()
    counted = None if entry.count is None else entry.count.expected
    sites = None if counted is None else counted - len(entry.fused) or None
    isolation = isolate(
        matching.graphs,
        Variant(chosen[0], trace, matching.device),
        trace,
        matching.device,
        sites,
        decomposition_table(matching.traced_with),
    )
    return [
        {
            "pattern": name,
            "variant": nearest,
            "level": number,
            "call": level.call,
            "source": level.source,
            "nodes": level.nodes,
            "hits": level.hits,
            "sites": sites,
            "first difference": "here" if level is isolation.falls_at else None,
            "note": level.note or None,
        }
        for number, level in enumerate(isolation.levels, start=1)
    ]


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
        with_readings(
            f"{entry.reason}; {first.type} at {first.graph_node}: pattern {first.expected}, graph {first.actual}"
        ),
    )


def _row(
    name: str, status: str, site: SiteExplanation | SiteMatch | FusedSite, outcome: str
) -> dict[str, Any]:
    return {
        "pattern": name,
        "status": status,
        "module": site.module,
        "source": site.source,
        "anchor": site.anchor,
        _OUTCOME: outcome,
    }
