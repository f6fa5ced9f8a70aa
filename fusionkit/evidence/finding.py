"""A finding of a verification, and its effect on the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fusionkit.encoding import Result


class Effect(StrEnum):
    """Outcome that a finding causes, the most severe first; a NOTE causes none."""

    CONTRADICTED = "contradicted"
    INCOMPLETE = "incomplete"
    STALE = "stale"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding(Result):
    """`path`: the file concerned, relative to the run folder where it lies in it; `what`: one line."""

    path: str
    what: str
    effect: Effect = Effect.CONTRADICTED
