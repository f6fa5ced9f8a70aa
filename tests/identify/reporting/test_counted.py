"""What a proof counted, in words, and what it does to a judgement."""

from dataclasses import asdict, replace

import pytest

from fusionkit.identify.candidates import Candidate
from fusionkit.identify.proofs import weighed
from fusionkit.identify.proving.proof import Proof
from fusionkit.identify.proving.traffic import BOTH_WAYS, FORWARD, Traffic, Work
from fusionkit.identify.reporting.counted import counted_ceiling, counted_traffic, traffic_lines
from fusionkit.verdict import Verdict

GATE = Work((("silu", 1), ("mul", 1)), 50)
JOINED = Work((("cat", 1), ("npu::npu_swiglu", 1)), 70)
MORE = Traffic(FORWARD, "bfloat16", GATE, JOINED)
LESS = Traffic(FORWARD, "bfloat16", GATE, Work((("npu::npu_swiglu", 1),), 30))
TRAINED = Traffic(BOTH_WAYS, "bfloat16", Work((("mul", 3),), 140), JOINED)


def test_a_proof_keeps_its_traffic_in_json():
    proof = Proof("npu_swiglu", "a.py", "M", Verdict.PASS, "", traffic=(MORE, TRAINED))
    assert Proof.from_dict(proof.to_dict()).traffic == (MORE, TRAINED)
    assert counted_traffic(proof.to_dict()) == [MORE, TRAINED]
    assert counted_traffic(None) == []


def test_lines_tell_the_ops_the_calls_and_the_bytes():
    lines = traffic_lines([MORE, TRAINED], "en")
    assert "forward, bfloat16; calls and bytes, no time" in lines[0]
    assert "`silu, mul` -> `cat, npu::npu_swiglu`; 2 -> 2 calls, 50 -> 70 bytes" in lines[0]
    assert "forward and backward" in lines[1]
    assert "`3 mul`" in lines[1]


def test_the_ceiling_is_the_ratio_of_the_bytes():
    assert "at most 1.7x" in counted_ceiling(LESS, "en")
    assert "1.40 times the bytes of the original: no gain" in counted_ceiling(MORE, "en")


@pytest.mark.parametrize(
    ("op", "traffic", "recommend", "priority", "reason"),
    [
        ("npu_swiglu", (LESS,), "yes", 1, "as before"),
        (
            "npu_swiglu",
            (MORE, TRAINED),
            "yes",
            2,
            "pays in training: forward alone, cat, npu::npu_swiglu move 1.40",
        ),
        ("npu_swiglu", (MORE,), "defer", 3, "as written it saves nothing"),
        ("npu_swiglu", (), "yes", 1, "as before"),
        ("npu_grouped_matmul", (MORE,), "yes", 1, "as before"),
    ],
)
def test_a_judgement_rests_on_what_was_counted(candidate, op, traffic, recommend, priority, reason):
    told = weighed(replace(candidate, op=op), traffic)
    assert (told.recommend, told.priority) == (recommend, priority)
    assert told.reason.startswith(reason)


@pytest.fixture
def candidate() -> Candidate:
    fields = dict.fromkeys(Candidate.__dataclass_fields__, ())
    return Candidate(
        **(fields | {"recommend": "yes", "priority": 1, "reason": "as before", "proof": asdict(MORE)})
    )
