"""Candidates that are one decision: the same op, judgement and code, copied over files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fusionkit.identify.candidates import Candidate

_SEVERITY = ("yes", "defer", "no")


@dataclass(frozen=True, slots=True)
class Group:
    """Candidates of the same code; the first stands for all of them."""

    members: tuple[Candidate, ...]

    @property
    def first(self) -> Candidate:
        """The one that is shown: a proved one where there is any."""
        return next((item for item in self.members if item.proof is not None), self.members[0])

    @property
    def others(self) -> tuple[Candidate, ...]:
        """The rest."""
        return tuple(item for item in self.members if item is not self.first)


def grouped(candidates: Iterable[Candidate], codes: Mapping[str, object]) -> tuple[Group, ...]:
    """Groups in the order of the report: recommended first, by priority, then few hazards, then many copies.

    `codes`: what is equal for the same code and a replacement alike, by the candidate's id; one that has none is alone.
    Proofs that differ part a group.
    """
    groups: dict[tuple[object, ...], list[Candidate]] = {}
    for item in candidates:
        proof = None if item.proof is None else item.proof.get("verdict")
        code = codes.get(item.id, item.id)
        key = (item.op, item.recommend, item.reason, item.hazards, proof, code)
        groups.setdefault(key, []).append(item)
    return tuple(sorted((Group(tuple(members)) for members in groups.values()), key=_rank))


def _rank(group: Group) -> tuple[object, ...]:
    item = group.first
    return (
        _SEVERITY.index(item.recommend),
        item.priority,
        len(item.hazards),
        -len(group.members),
        item.file,
        item.line,
    )
