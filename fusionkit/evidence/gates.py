"""A gate is one question that a phase must answer; the phase's verdict is what its gates combine to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusionkit.verdict import Verdict, combine


@dataclass(frozen=True, slots=True)
class Gate:
    """One question and its answer."""

    name: str
    verdict: Verdict
    reason: str

    def __bool__(self) -> bool:
        return bool(self.verdict)

    def to_dict(self) -> dict[str, str]:
        """Plain JSON types."""
        return {"name": self.name, "verdict": str(self.verdict), "reason": self.reason}


def phase_verdict(gates: Sequence[Gate]) -> Verdict:
    """PASS when every gate passes; FAIL when one fails; INCONCLUSIVE otherwise, also without any gate."""
    return combine(gate.verdict for gate in gates)


def phase_reason(gates: Sequence[Gate]) -> str:
    """The reasons of the gates that decide the verdict, or the names of all gates when all pass."""
    verdict = phase_verdict(gates)
    if not gates:
        return "nothing was compared"
    if verdict is Verdict.PASS:
        return "passed: " + ", ".join(gate.name for gate in gates)
    return "; ".join(f"{gate.name}: {gate.reason}" for gate in gates if gate.verdict is verdict)
