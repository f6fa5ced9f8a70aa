"""What was said of each dropped site, held against the label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mismatches.case import Case
from mismatches.labels import Expected, Label


@dataclass(frozen=True, slots=True)
class Told:
    """One cause as it was told; a name may be empty."""

    type: str
    pattern_node: str
    graph_node: str


@dataclass(frozen=True, slots=True)
class Explained:
    """What was said of one site: where, and the causes in order."""

    anchor: str
    module: str
    causes: tuple[Told, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that was said of a case: sites, or the one line of a refusal to load the pattern."""

    sites: tuple[Explained, ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """Whether the types and the nodes are right at every dropped site; `node` None where none is expected.

    `extra`: causes beyond the expected ones. `false`: diagnoses of sites that hit.
    """

    type: bool
    node: bool | None
    extra: int
    false: int
    got: str


def score(case: Case, outcome: Outcome) -> Score:
    """The score of one case."""
    pairs = pair(case.expected, outcome.sites)
    gone = {name for item in case.expected for name in item.site.found.nodes}
    missed = {item.site.found for item in case.expected}
    held = {name for s in case.sites if s.found not in missed for name in s.found.nodes} - gone
    false = sum(item.anchor in held for item in outcome.sites)
    if outcome.error:
        right = all(refusal_names(outcome.error, kind) for kind in case.types) and bool(case.types)
        has_nodes = any(lb.pattern_nodes or lb.graph_nodes for item in case.expected for lb in item.labels)
        return Score(right, False if has_nodes and not right else None, 0, false, outcome.error)
    types, nodes, extra, got = [], [], 0, []
    for expected, found in pairs:
        causes = found.causes if found else ()
        good, placed = _judged(expected.labels, causes)
        types.append(good)
        nodes.append(placed)
        extra += max(0, len(causes) - len(expected.labels))
        told = "; ".join(f"{c.type}[{c.pattern_node}|{c.graph_node}]" for c in causes) or "nothing"
        got.append(f"{expected.site.found.anchor}: {told}")
    known = [placed for placed in nodes if placed is not None]
    return Score(all(types), all(known) if known else None, extra, false, " / ".join(dict.fromkeys(got)))


def pair(expected: Sequence[Expected], told: Sequence[Explained]) -> list[tuple[Expected, Explained | None]]:
    """Each expected site with what was said of it: by its nodes, else by its module, in order."""
    left, found = list(told), {}
    for index, item in enumerate(expected):
        match = next((t for t in left if t.anchor in item.site.found.nodes), None)
        if match is not None:
            found[index] = match
            left.remove(match)
    for index, item in enumerate(expected):
        if index in found:
            continue
        match = next((t for t in left if t.module == item.site.module or t.module in item.site.modules), None)
        if match is not None:
            found[index] = match
            left.remove(match)
    return [(item, found.get(index)) for index, item in enumerate(expected)]


def refusal_names(error: str, kind: str) -> bool:
    """Whether the line by which a pattern is refused says what is wrong with it."""
    words = {
        "unused_argument": ("unused_argument", "is not used by"),
        "parameter_source": ("parameter_source",),
    }
    return any(word in error for word in words.get(kind, ()))


def _judged(labels: Sequence[Label], causes: Sequence[Told]) -> tuple[bool, bool | None]:
    """One label: the first cause must be it. Several: each must be among the causes."""
    if not causes:
        return False, False if any(label.pattern_nodes or label.graph_nodes for label in labels) else None
    chosen: list[tuple[Label, Sequence[Told]]] = (
        [(labels[0], causes[:1])]
        if len(labels) == 1
        else [(label, [c for c in causes if c.type == label.type] or causes) for label in labels]
    )
    types = all(any(cause.type == label.type for cause in some) for label, some in chosen)
    scored = [(label, some) for label, some in chosen if label.pattern_nodes or label.graph_nodes]
    if not scored:
        return types, None
    return types, all(any(_placed(label, cause) for cause in some) for label, some in scored)


def _placed(label: Label, cause: Told) -> bool:
    sides = []
    for names, name in ((label.pattern_nodes, cause.pattern_node), (label.graph_nodes, cause.graph_node)):
        if names and name:
            sides.append(name in names)
    return bool(sides) and all(sides)


def outcome_of(reports: Sequence[Any]) -> Outcome:
    """The kit's explain reports in this form."""
    return Outcome(
        tuple(
            Explained(
                item.anchor,
                item.module,
                tuple(Told(c.type, _name(c.pattern_node), _name(c.graph_node)) for c in item.causes),
            )
            for report in reports
            for item in report.missed
        )
    )


def _name(text: str | None) -> str:
    """The node's name in a field that may go on after it."""
    words = (text or "").replace("%", "").replace(":", " ").replace("(", " ").split()
    return words[0] if words else ""
