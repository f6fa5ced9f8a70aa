"""The report of hits with all that no count covers: hits, skipped matches and near misses, named and never a PASS."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fusionkit.capture.sources import module_path, source_line
from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.fusions import pattern_names
from fusionkit.match.explanation.entry_variants import entry_variants
from fusionkit.match.explanation.near_places import NearPlaces
from fusionkit.match.explanation.variants import Variant
from fusionkit.match.hits import HitReport, NearMiss, PatternHits, report_hits
from fusionkit.match.matching import Matching, match_subject
from fusionkit.npu.target import current_target, use_target
from fusionkit.passes.registry import enabled_groups
from fusionkit.subjects.build import Subject
from fusionkit.subjects.site_counts import ExpectedCount, expected_counts
from fusionkit.verdict import Verdict

_MOST_NAMED = 3  # near misses, and lines, that a reason names


def hits(
    subject: Subject,
    *,
    patterns: Sequence[str] | None = None,
    config: CompilationConfig | None = None,
    asserted: Mapping[str, int | None] | None = None,
) -> HitReport:
    """Count sites in eager mode, compile, and compare the hits with the count.

    `patterns`: names to report; by default all patterns that have a count, a match or a near miss. `asserted`:
    further numbers that the caller expects; they never replace the count.
    """
    use_target(current_target() or "cpu")
    counts = expected_counts(subject)
    config = config or CompilationConfig(fusion_patterns=select_patterns(tuple(patterns or pattern_names())))
    return report_all(match_subject(subject, config), counts, patterns, asserted=asserted)


def report_all(
    matching: Matching,
    counts: Mapping[str, ExpectedCount],
    requested: Sequence[str] | None = None,
    *,
    asserted: Mapping[str, int | None] | None = None,
) -> HitReport:
    """The report of a matching, with the near misses of every pattern whose count does not cover all sites.

    Unless `requested`, a pattern of the kit without a count, a match or a near miss is only named, in `absent`.
    """
    report = report_hits(matching, counts, asserted=asserted)
    entries = {name: _with_near_misses(entry, matching) for name, entry in report.patterns.items()}
    absent = tuple(name for name, entry in entries.items() if not _has_something(entry))
    kits = enabled_groups(select_patterns(pattern_names()))
    optional = {
        name for name in absent if name not in (requested or ()) and matching.groups[name] is kits.get(name)
    }
    kept = {name: entry for name, entry in entries.items() if name not in optional}
    return replace(report, patterns=kept, absent=absent)


def near_misses(matching: Matching, pattern: str) -> tuple[NearMiss, ...]:
    """The near misses of `pattern` outside its matches, in graph order."""
    group, trace = matching.groups[pattern], matching.tracer()
    variants = [Variant(item, trace, matching.device) for item in group] + entry_variants(group)
    near: list[NearMiss] = []
    for graph in matching.graphs if variants else ():
        taken = {
            name
            for match in matching.of(pattern)
            if match.graph_index == graph.key.index
            for name in match.nodes
        }
        places = NearPlaces(graph.nodes, variants)
        for place in places.near([node for node in places.nodes if node.name not in taken]):
            root = place.alignment.roots[0][1]
            reason = f"resembles {place.variant.name}"
            near.append(NearMiss(root.name, module_path(root), source_line(root), reason, graph.key.index))
    return tuple(near)


def _with_near_misses(entry: PatternHits, matching: Matching) -> PatternHits:
    """The entry with its near misses, INCONCLUSIVE if it has any; unchanged if its count covers all sites."""
    if entry.verdict is Verdict.FAIL or (entry.count is not None and entry.count.is_whole):
        return entry
    near = near_misses(matching, entry.pattern)
    if not near:
        return entry
    places = _first(place.module or place.anchor for place in near)
    lines = _first(dict.fromkeys(place.source for place in near if place.source))
    reason = f"{entry.reason}; {len(near)} near misses where no site was counted: {places} ({lines})"
    return replace(entry, near=near, verdict=Verdict.INCONCLUSIVE, reason=reason)


def _first(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join([*listed[:_MOST_NAMED], *(["..."] if len(listed) > _MOST_NAMED else [])])


def _has_something(entry: PatternHits) -> bool:
    counted = entry.count is not None and entry.count.expected is not None
    return bool(counted or entry.matches or entry.fused or entry.near or entry.asserted is not None)
