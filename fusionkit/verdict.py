"""PASS, FAIL or INCONCLUSIVE: the three answers a check can give, and how they combine."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """Answer of a check. Only PASS is true in a boolean context."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"

    def __bool__(self) -> bool:
        return self is Verdict.PASS


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """Combine verdicts: any FAIL fails; else any INCONCLUSIVE, or no verdict at all, is INCONCLUSIVE."""
    seen = list(verdicts)
    if Verdict.FAIL in seen:
        return Verdict.FAIL
    if not seen or Verdict.INCONCLUSIVE in seen:
        return Verdict.INCONCLUSIVE
    return Verdict.PASS
