"""The state of every site of a capture, keyed so that two captures of one model can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fusionkit.fusions import site_fusions
from fusionkit.match.explanation.missing import explain_missing
from fusionkit.match.hits import PatternHits, report_hits
from fusionkit.match.matching import Matching
from fusionkit.match.site_joins import FusedSite, SiteJoin, already_fused
from fusionkit.passes.site_match import SiteMatch
from fusionkit.subjects.site_counts import ExpectedCount

Key = tuple[str, str, int]

NOT_COUNTED = "no site was counted there"


@dataclass(frozen=True, slots=True)
class SiteState:
    """One site on one side. `state`: hit, miss, already_fused or skipped; `note`: the reason, if any."""

    state: str
    source: str
    note: str = ""


def site_states(matching: Matching, counts: Mapping[str, ExpectedCount]) -> dict[Key, SiteState]:
    """(pattern, module, number among the pattern's sites of that module) -> state, in call order.

    With a site count by module, the counted sites; without one, the matches and fused ops. A fused op of a fusion
    for which the kit has no pattern is a site too.
    """
    states: dict[Key, SiteState] = {}
    for name, entry in report_hits(matching, counts).patterns.items():
        _add(states, name, _uncounted(entry) if entry.join is None else _counted(entry, entry.join))
    for name in site_fusions():
        if name not in matching.groups:
            fused = already_fused(name, matching.graphs)
            _add(states, name, [(site.module, _state_of(site)) for site in fused])
    return states


def with_first_causes(
    states: Mapping[Key, SiteState], keys: Sequence[Key], matching: Matching
) -> dict[Key, SiteState]:
    """`states` with the first cause of each miss among `keys` as note.

    Of all misses of a pattern on one source line only the first is explained; the others get its note.
    """
    causes: dict[tuple[str, str], str] = {}
    noted = dict(states)
    for key in keys:
        pattern, module, _ = key
        state = states[key]
        if state.state != "miss" or state.note:
            continue
        place = (pattern, state.source)
        if place not in causes:
            cause = explain_missing(matching, pattern, [module])[0].causes[0]
            causes[place] = f"{cause.type}: pattern has {cause.expected}, graph has {cause.actual}"
        noted[key] = replace(state, note=causes[place])
    return noted


def _add(states: dict[Key, SiteState], pattern: str, sites: Sequence[tuple[str, SiteState]]) -> None:
    seen: dict[str, int] = {}
    for module, state in sites:
        states[pattern, module, seen.setdefault(module, 0)] = state
        seen[module] += 1


def _counted(entry: PatternHits, join: SiteJoin) -> list[tuple[str, SiteState]]:
    """Every counted site in call order, then matches and fused ops where none was counted."""
    rows = [(site.ordinal, site.module, _state_of(item)) for site, item in join.joined]
    rows += [
        (site.ordinal, site.module, SiteState("miss", site.source, _refusal(entry, site.module)))
        for site in join.missing
    ]
    states = [(module, state) for _, module, state in sorted(rows, key=lambda row: row[0])]
    for item in join.surplus:
        state = _state_of(item)
        states.append((item.module, replace(state, note=state.note or NOT_COUNTED)))
    return states


def _uncounted(entry: PatternHits) -> list[tuple[str, SiteState]]:
    matches: list[SiteMatch | FusedSite] = [m for m in entry.matches if m.status != "refused"]
    return [(item.module, _state_of(item)) for item in [*matches, *entry.fused]]


def _state_of(item: SiteMatch | FusedSite) -> SiteState:
    state = item.status if isinstance(item, SiteMatch) else "already_fused"
    return SiteState(state, item.source, item.reason or "")


def _refusal(entry: PatternHits, module: str) -> str:
    return next((f"refused: {m.reason}" for m in entry.refused if module in (m.module, *m.modules)), "")
