"""One thing that a verification found out, and what it means for the outcome."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum


class Effect(StrEnum):
    """What a finding makes of the evidence, the gravest first. A NOTE changes nothing."""

    CONTRADICTED = "contradicted"
    INCOMPLETE = "incomplete"
    STALE = "stale"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """`path`: the file concerned, relative to the run folder where it lies in it; `what`: one line."""

    path: str
    what: str
    effect: Effect = Effect.CONTRADICTED

    def to_dict(self) -> dict[str, str]:
        """Plain JSON types."""
        return {**asdict(self), "effect": str(self.effect)}
