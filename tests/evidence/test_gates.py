"""The verdict of a phase and the reason that goes with it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fusionkit.evidence.gates import Gate, phase_reason, phase_verdict
from fusionkit.verdict import Verdict

GATES = st.lists(
    st.builds(Gate, st.text("abc", min_size=1), st.sampled_from(Verdict), st.text("xyz", min_size=1)),
    max_size=6,
)


def test_without_a_gate_nothing_was_compared() -> None:
    assert phase_verdict([]) is Verdict.INCONCLUSIVE
    assert phase_reason([]) == "nothing was compared"


@given(GATES)
def test_the_reason_names_exactly_the_gates_that_decide(gates: list[Gate]) -> None:
    verdict = phase_verdict(gates)
    deciding = [gate for gate in gates if gate.verdict is verdict]
    if gates and verdict is not Verdict.PASS:
        assert phase_reason(gates) == "; ".join(f"{gate.name}: {gate.reason}" for gate in deciding)
    assert bool(verdict) == (bool(gates) and all(gates))


def test_a_pass_names_its_gates() -> None:
    gates = [Gate("hits", Verdict.PASS, "12 of 12"), Gate("numbers", Verdict.PASS, "equal")]
    assert phase_reason(gates) == "passed: hits, numbers"
    assert gates[0].to_dict() == {"name": "hits", "verdict": "PASS", "reason": "12 of 12"}
