"""PASS, FAIL and INCONCLUSIVE: the verdicts of a check, and their combination."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """Verdict of a check. Only PASS is true in a boolean context."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"

    def __bool__(self) -> bool:
        return self is Verdict.PASS


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """FAIL if any is FAIL; else INCONCLUSIVE if any is, or if there is none; else PASS."""
    seen = list(verdicts)
    if Verdict.FAIL in seen:
        return Verdict.FAIL
    if not seen or Verdict.INCONCLUSIVE in seen:
        return Verdict.INCONCLUSIVE
    return Verdict.PASS
