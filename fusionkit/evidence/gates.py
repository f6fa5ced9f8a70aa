"""Gates: the checks of a phase; the phase's verdict combines theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusionkit.encoding import Result
from fusionkit.verdict import Verdict, combine

# Phase 6 has both gates where the target computes; where it does not, only the first, which says so.
SITE_NUMBERS, MODEL_NUMBERS = "numbers per site", "whole model in float32"


@dataclass(frozen=True, slots=True)
class Gate(Result):
    """One check of a phase: its verdict and the reason."""

    name: str
    verdict: Verdict
    reason: str

    def __bool__(self) -> bool:
        return bool(self.verdict)


def phase_verdict(gates: Sequence[Gate]) -> Verdict:
    """PASS when every gate passes; FAIL when one fails; INCONCLUSIVE otherwise, also without any gate."""
    return combine(gate.verdict for gate in gates)


def phase_reason(gates: Sequence[Gate]) -> str:
    """The reasons of the gates that decide the verdict; the names of all gates if all pass."""
    verdict = phase_verdict(gates)
    if not gates:
        return "nothing was compared"
    if verdict is Verdict.PASS:
        return "passed: " + ", ".join(gate.name for gate in gates)
    return "; ".join(f"{gate.name}: {gate.reason}" for gate in gates if gate.verdict is verdict)
