"""A proof in words: the verdict, what was forced, the worst runs first, and figures of those that pass."""

from fusionkit.identify.proving.proof import Figures, Proof, Run
from fusionkit.identify.reporting.proof_section import proof_section
from fusionkit.verdict import Verdict

EXACT = Figures(1, 8, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, True)
NEAR = Figures(1, 8, 1.25, 0.5, 4.0, 0.1, 1.0, 0.9999, 0.0078125, False)


def run(verdict, figures, dtype="float32", reason=""):
    return Run(verdict, reason, dtype, False, True, "x", {"x": [2, 3]}, (dtype,), (dtype,), figures=figures)


def told(runs, verdict=Verdict.PASS):
    proof = Proof("npu_rms_norm", "a.py", "N", verdict, "all runs agree", tuple(runs), ("eager experts",))
    return "\n".join(proof_section(proof.to_dict(), "en"))


def test_a_proof_that_passes_tells_its_figures():
    text = told([run(Verdict.PASS, EXACT), run(Verdict.PASS, NEAR, "bfloat16")])
    assert text.startswith("**PASS**: all runs agree")
    assert "`eager experts`" in text
    assert "bit-equal" in text
    assert "1.25 ulp of at most 4 (original 0.5); largest difference 0.00781" in text
    assert "bfloat16 / bfloat16" in text
    assert "float32; x; forward and backward; x (2, 3)" in text


def test_failures_stand_first_and_the_rest_is_counted():
    many = [run(Verdict.PASS, EXACT)] * 8 + [run(Verdict.FAIL, NEAR, reason="halves | swapped")]
    text = told(many, Verdict.FAIL)
    rows = [line for line in text.splitlines() if line.startswith("| float32")]
    assert len(rows) == 6
    assert "halves \\| swapped" in rows[0]
    assert "3 further runs: PASS 3" in text


def test_no_proof_is_said_and_so_is_one_without_runs():
    assert proof_section(None, "en") == ["not tried: scan with --prove"]
    text = "\n".join(
        proof_section(Proof("o", "f", "s", Verdict.INCONCLUSIVE, "cannot be built").to_dict(), "zh")
    )
    assert "**INCONCLUSIVE**: cannot be built" in text
