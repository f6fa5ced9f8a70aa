"""A finding of a verification, and its effect on the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

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


def phase_file(phase: Mapping[str, Any]) -> str:
    """The file of a phase record, relative to the run folder."""
    return f"phases/{phase['phase']:02d}.json"
