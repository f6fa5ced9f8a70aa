"""The verdict of a phase and the reason that goes with it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fusionkit.evidence.gates import MODEL_NUMBERS, SITE_NUMBERS, Gate, phase_reason, phase_verdict
from fusionkit.evidence.phase_records import compared_nothing
from fusionkit.verdict import Verdict

_NUMBERS = {"site": SITE_NUMBERS, "model": MODEL_NUMBERS}

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


def test_what_compared_nothing() -> None:
    def phase(claims: dict[str, tuple[int, int | None]], **numbers: str) -> dict[str, object]:
        hits = {name: {"hits": hits, "expected_sites": sites} for name, (hits, sites) in claims.items()}
        named = {"hits": "PASS", **{_NUMBERS[key]: verdict for key, verdict in numbers.items()}}
        return {"hits": hits, "gates": [{"name": name, "verdict": v} for name, v in named.items()]}

    assert compared_nothing({"hits": {}, "gates": []})
    assert compared_nothing(phase({"gelu": (0, None), "rope": (0, 0)}))
    assert not compared_nothing(phase({"gelu": (0, None), "rope": (0, 8)}))  # missed
    assert not compared_nothing(phase({"gelu": (2, None)}))  # not counted
    assert compared_nothing(phase({"gelu": (2, 2)}, site="INCONCLUSIVE", model="INCONCLUSIVE"))
    assert not compared_nothing(phase({"gelu": (2, 2)}, site="PASS", model="INCONCLUSIVE"))
    assert not compared_nothing(phase({"gelu": (2, 2)}, site="INCONCLUSIVE"))  # a target without values
    assert not compared_nothing(phase({}))  # a phase without hits


def test_a_pass_names_its_gates() -> None:
    gates = [Gate("hits", Verdict.PASS, "12 of 12"), Gate("numbers", Verdict.PASS, "equal")]
    assert phase_reason(gates) == "passed: hits, numbers"
    assert gates[0].to_dict() == {"name": "hits", "verdict": "PASS", "reason": "12 of 12"}
