"""Hits per pattern and per site, compared with the independent site count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fusionkit.capture.graphs import Capture
from fusionkit.capture.sources import module_path
from fusionkit.encoding import Result
from fusionkit.fusions import pattern_names
from fusionkit.match.matching import Matching
from fusionkit.match.site_joins import FusedSite, SiteJoin, already_fused, join_sites
from fusionkit.npu.target import shows_values
from fusionkit.passes.site_match import SiteMatch
from fusionkit.subjects.site_counts import ExpectedCount, ExpectedSite
from fusionkit.verdict import Verdict

SCHEMA = "fusionkit.hits/1"


@dataclass(frozen=True, slots=True)
class NearMiss(Result, keys={"graph_index": "graph"}):
    """A place that resembles a pattern, where no site was counted. `anchor`: the node where the pattern would end."""

    anchor: str
    module: str
    source: str
    reason: str
    graph_index: int


@dataclass(frozen=True, slots=True)
class PatternHits:
    """One pattern on one subject. `count`: the independent site count, None without one.

    `asserted`: a further number that the caller expects. `join`: None if the count has no sites by module. `near`:
    the near misses, searched only if no count covers every site.
    """

    pattern: str
    matches: tuple[SiteMatch, ...]
    fused: tuple[FusedSite, ...]
    count: ExpectedCount | None
    asserted: int | None
    join: SiteJoin | None
    verdict: Verdict
    reason: str
    near: tuple[NearMiss, ...] = ()

    @property
    def hits(self) -> tuple[SiteMatch, ...]:
        """The replaced sites."""
        return tuple(match for match in self.matches if match.status == "hit")

    @property
    def skipped(self) -> tuple[SiteMatch, ...]:
        """The matches that a documented limit of the fused op excludes, each with its reason."""
        return tuple(match for match in self.matches if match.status == "skipped")

    @property
    def refused(self) -> tuple[SiteMatch, ...]:
        """The matches whose replacement does not fit; they count as misses."""
        return tuple(match for match in self.matches if match.status == "refused")

    @property
    def missing(self) -> tuple[ExpectedSite, ...]:
        """Expected sites without a match or fused op."""
        return () if self.join is None else self.join.missing

    def to_dict(self) -> dict[str, Any]:
        """The pattern's entry of the hits JSON."""
        return {
            "hits": len(self.hits),
            "expected_sites": None if self.count is None else self.count.expected,
            "asserted_sites": self.asserted,
            "already_fused": [site.to_dict() for site in self.fused],
            "skipped": [match.to_dict() for match in self.skipped],
            "refused": [match.to_dict() for match in self.refused],
            "missing": [{"module": site.module, "source": site.source} for site in self.missing],
            "near_misses": [place.to_dict() for place in self.near],
            "verdict": str(self.verdict),
            "reason": self.reason,
            "sites": [match.to_dict() for match in self.hits],
        }


@dataclass(frozen=True, slots=True)
class HitReport(Result, schema=SCHEMA):
    """Hits of the requested patterns on one subject, with graph breaks, recompiles and notes of the compile.

    `absent`: patterns without a count, a match or a near miss; they are in `patterns` only if they were requested.
    """

    subject: str
    target: str
    window: str
    dtype: str
    graphs: int
    breaks: tuple[str, ...]
    recompiles: tuple[str, ...]
    patterns: Mapping[str, PatternHits] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def default_patterns(counts: Mapping[str, ExpectedCount]) -> tuple[str, ...]:
    """The patterns with a site count; all patterns if there is none."""
    counted = tuple(name for name in pattern_names() if name in counts and counts[name].expected is not None)
    return counted or pattern_names()


def report_hits(
    matching: Matching,
    counts: Mapping[str, ExpectedCount],
    *,
    asserted: Mapping[str, int | None] | None = None,
) -> HitReport:
    """The report of a matching, for each of its pattern groups."""
    entries = {
        name: judge_hits(
            name,
            matching.of(name),
            already_fused(name, matching.graphs),
            counts.get(name),
            (asserted or {}).get(name),
        )
        for name in matching.groups
    }
    capture = matching.capture
    if capture.breaks and not shows_values(capture.target):
        seen = {module_path(node) for graph in matching.graphs for node in graph.nodes}
        entries = {name: _uncaptured(entry, seen, capture) for name, entry in entries.items()}
    return HitReport(
        subject=capture.subject,
        target=capture.target,
        window=matching.window,
        dtype=capture.dtype,
        graphs=len(matching.graphs),
        breaks=capture.breaks,
        recompiles=capture.recompiles,
        patterns=entries,
        notes=capture.notes,
    )


def _uncaptured(entry: PatternHits, seen: set[str], capture: Capture) -> PatternHits:
    """INCONCLUSIVE if all missing sites are behind a graph break: a target without values captures no graph there."""
    below = [f"{site.module}." for site in entry.missing]
    lost = [place for place in below if not any(f"{path}.".startswith(place) for path in seen)]
    if entry.verdict is not Verdict.FAIL or not lost or len(lost) < len(below):
        return entry
    reason = (
        f"{entry.reason}; not captured: {capture.target} has no graph behind the break ({capture.breaks[0]})"
    )
    return replace(entry, verdict=Verdict.INCONCLUSIVE, reason=reason)


def judge_hits(
    pattern: str,
    matches: tuple[SiteMatch, ...],
    fused: tuple[FusedSite, ...],
    count: ExpectedCount | None,
    asserted: int | None = None,
) -> PatternHits:
    """The verdict on one pattern: every counted site is a hit, already fused, or skipped with a reason."""
    accounted = tuple(match for match in matches if match.status != "refused")
    refused = [match for match in matches if match.status == "refused"]
    join = None
    if count is not None and count.sites is not None and count.expected == len(count.sites):
        join = join_sites(count.sites, [*accounted, *fused])
    verdict, reason = _judge(accounted, fused, join, None if count is None else count.expected)
    if refused and verdict is not Verdict.PASS:
        verdict, reason = Verdict.FAIL, f"{reason}; {len(refused)} refused: {refused[0].reason}"
    if count is not None and count.contradiction is not None:
        verdict, reason = Verdict.FAIL, count.contradiction
    total = len(accounted) + len(fused)
    if asserted is not None and asserted != total:
        verdict, reason = Verdict.FAIL, f"expected_sites.{pattern} says {asserted}, {total} were found"
    return PatternHits(pattern, matches, fused, count, asserted, join, verdict, reason)


def _judge(
    matches: Sequence[SiteMatch], fused: Sequence[FusedSite], join: SiteJoin | None, expected: int | None
) -> tuple[Verdict, str]:
    """Verdict and reason of the accounted sites of one pattern against the expected number."""
    hits = sum(match.status == "hit" for match in matches)
    skipped = [match for match in matches if match.status == "skipped"]
    left = f", {len(skipped)} skipped: {skipped[0].reason}" if skipped else ""
    if expected is None:
        return Verdict.INCONCLUSIVE, f"{hits} hits{left}, but no independent site count to compare with"
    summary = f"{hits} hits of {expected} sites"
    if fused:
        lines = dict.fromkeys(f"{site.source} calls {site.op}" for site in fused)
        summary += f", {len(fused)} already fused by the library ({', '.join(lines)})"
    summary += left
    if join is not None and join.surplus:
        places = ", ".join(item.module or item.anchor for item in join.surplus[:3])
        return Verdict.FAIL, f"{len(join.surplus)} matches where no site was counted: {places}"
    if join is not None and join.missing:
        places = ", ".join(site.module for site in join.missing[:3])
        more = ", ..." if len(join.missing) > 3 else ""
        return Verdict.FAIL, f"{summary}; missed: {places}{more}"
    if len(matches) + len(fused) != expected:
        return Verdict.FAIL, summary
    if expected == 0:
        return Verdict.INCONCLUSIVE, "zero sites: this subject has none of this primitive"
    if hits == 0 and not fused:
        return Verdict.INCONCLUSIVE, f"{summary}; nothing was replaced"
    return Verdict.PASS, summary
