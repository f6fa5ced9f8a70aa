"""Hits per pattern and per site, held against the independent count of sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fusionkit.config import CompilationConfig, pattern_names, select_patterns
from fusionkit.match.sites import FusedSite, SiteJoin, already_fused, join_sites
from fusionkit.npu.target import current_target, use_target
from fusionkit.passes.compiled import Compiled, compile_subject
from fusionkit.passes.hits import SiteMatch
from fusionkit.subjects.build import Subject
from fusionkit.subjects.sites import ExpectedSite, count_sites
from fusionkit.verdict import Verdict

SCHEMA = "fusionkit.hits/1"


@dataclass(frozen=True, slots=True)
class PatternHits:
    """One pattern on one subject. `expected` is the independent count, None where there is none."""

    pattern: str
    matches: tuple[SiteMatch, ...]
    fused: tuple[FusedSite, ...]
    expected: tuple[ExpectedSite, ...] | None
    asserted: int | None
    join: SiteJoin | None
    verdict: Verdict
    reason: str

    @property
    def hits(self) -> tuple[SiteMatch, ...]:
        """The sites that were replaced."""
        return tuple(match for match in self.matches if match.status == "hit")

    @property
    def skipped(self) -> tuple[SiteMatch, ...]:
        """The sites that matched and must not be replaced, each with its reason."""
        return tuple(match for match in self.matches if match.status == "skipped")

    @property
    def missing(self) -> tuple[ExpectedSite, ...]:
        """Expected sites at which nothing was found."""
        return () if self.join is None else self.join.missing

    def to_dict(self) -> dict[str, Any]:
        """The pattern's entry of the hits JSON."""
        return {
            "hits": len(self.hits),
            "expected_sites": None if self.expected is None else len(self.expected),
            "asserted_sites": self.asserted,
            "already_fused": [site.to_dict() for site in self.fused],
            "skipped": [match.to_dict() for match in self.skipped],
            "missing": [{"module": site.module, "source": site.source} for site in self.missing],
            "verdict": str(self.verdict),
            "reason": self.reason,
            "sites": [match.to_dict() for match in self.hits],
        }


@dataclass(frozen=True, slots=True)
class HitReport:
    """Hits of all asked patterns on one subject, with what the compile itself reported."""

    subject: str
    target: str
    window: str
    dtype: str
    graphs: int
    breaks: tuple[str, ...]
    recompiles: tuple[str, ...]
    patterns: Mapping[str, PatternHits] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The hits JSON."""
        return {
            "schema": SCHEMA,
            "subject": self.subject,
            "target": self.target,
            "window": self.window,
            "dtype": self.dtype,
            "graphs": self.graphs,
            "breaks": list(self.breaks),
            "recompiles": list(self.recompiles),
            "patterns": {name: entry.to_dict() for name, entry in self.patterns.items()},
        }


def hits(
    subject: Subject,
    *,
    patterns: Sequence[str] | None = None,
    config: CompilationConfig | None = None,
    asserted: Mapping[str, int | None] | None = None,
) -> HitReport:
    """Count sites in eager mode, compile, and hold the hits against the count.

    `patterns`: names to report; default: those whose sites this subject's count covers, or all. `asserted`:
    numbers that the caller expects besides; they never replace the count.
    """
    use_target(current_target() or "cpu")
    expected = count_sites(subject)
    names = tuple(patterns or [name for name in pattern_names() if expected.get(name) is not None] or pattern_names())
    config = config or CompilationConfig(fusion_patterns=select_patterns(names))
    return report_hits(compile_subject(subject, config), expected, asserted=asserted)


def report_hits(
    compiled: Compiled,
    expected: Mapping[str, Sequence[ExpectedSite] | None],
    *,
    asserted: Mapping[str, int | None] | None = None,
) -> HitReport:
    """The report of a compile that has been made, for every pattern group that took part in it."""
    entries = {}
    for name in compiled.session.patterns:
        matches = tuple(match for match in compiled.matches if match.pattern == name)
        fused = already_fused(name, compiled.before)
        counted = expected.get(name)
        entries[name] = judge_hits(
            name, matches, fused, None if counted is None else tuple(counted), (asserted or {}).get(name)
        )
    return HitReport(
        subject=compiled.subject.name,
        target=current_target() or "none",
        window=compiled.config.window,
        dtype=compiled.subject.dtype,
        graphs=len(compiled.before),
        breaks=compiled.outcome.breaks,
        recompiles=compiled.outcome.recompiles,
        patterns=entries,
    )


def judge_hits(
    pattern: str,
    matches: tuple[SiteMatch, ...],
    fused: tuple[FusedSite, ...],
    expected: tuple[ExpectedSite, ...] | None,
    asserted: int | None = None,
) -> PatternHits:
    """The verdict on one pattern: every counted site is a hit, already fused, or skipped with a reason."""
    join = None if expected is None else join_sites(expected, [*matches, *fused])
    verdict, reason = _judge(matches, fused, join)
    hit_count = sum(match.status == "hit" for match in matches)
    if asserted is not None and asserted != hit_count:
        verdict, reason = Verdict.FAIL, f"expected_sites says {asserted}, {hit_count} were hit"
    return PatternHits(pattern, matches, fused, expected, asserted, join, verdict, reason)


def _judge(
    matches: tuple[SiteMatch, ...], fused: tuple[FusedSite, ...], join: SiteJoin | None
) -> tuple[Verdict, str]:
    hit_count = sum(match.status == "hit" for match in matches)
    skipped = len(matches) - hit_count
    if join is None:
        return Verdict.INCONCLUSIVE, f"{hit_count} hits, but no independent count of sites to hold them against"
    total = len(join.joined) + len(join.missing)
    if join.surplus:
        places = ", ".join(item.module or item.anchor for item in join.surplus[:3])
        return Verdict.FAIL, f"{len(join.surplus)} matches where no site was counted: {places}"
    if join.missing:
        places = ", ".join(site.module for site in join.missing[:3])
        more = ", ..." if len(join.missing) > 3 else ""
        return Verdict.FAIL, f"{hit_count} hits of {total} sites; missed: {places}{more}"
    if total == 0:
        return Verdict.INCONCLUSIVE, "zero sites: this subject has none of this primitive"
    told = f"{hit_count} hits of {total} sites"
    if fused:
        told += f", {len(fused)} already fused by the library"
    if skipped:
        told += f", {skipped} skipped: {next(match.reason for match in matches if match.status == 'skipped')}"
    if hit_count == 0 and not fused:
        return Verdict.INCONCLUSIVE, f"{told}; nothing was replaced"
    return Verdict.PASS, told
