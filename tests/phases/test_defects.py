"""Wrong replacements are refused by phase 4, and by phase 6 where phase 4 was not run; the right one passes."""

import pytest
from trial_files import DEFECTS, write_trial

from fusionkit.phases.integrate import integrate
from fusionkit.phases.study import open_study
from fusionkit.phases.unit import verify_unit
from fusionkit.verdict import Verdict


def study(tmp_path, replacement, *, seed=0, dtype="bfloat16"):
    return open_study(
        subject="flux",
        dtype=dtype,
        seed=seed,
        patterns=["rms_norm"],
        pattern_file=str(write_trial(tmp_path, replacement)),
        run_dir=str(tmp_path / "run"),
    )


def verdicts(result):
    return {gate.name: gate.verdict for gate in result.gates}


@pytest.mark.parametrize("defect", DEFECTS)
def test_phase_4_refuses_wrong_numbers(tmp_path, defect):
    record = verify_unit(study(tmp_path, defect)).write()
    assert record.verdict is Verdict.FAIL
    assert "numbers" in record.reason or "ulp" in record.reason or "cosine" in record.reason


@pytest.mark.parametrize("defect", DEFECTS)
def test_phase_6_refuses_what_phase_4_was_not_asked(tmp_path, defect):
    record = integrate(study(tmp_path, defect)).write()
    assert record.verdict is Verdict.FAIL
    assert verdicts(record)["hits"] is Verdict.PASS
    assert verdicts(record)["numbers per site"] is Verdict.FAIL


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.acceptance) for seed in range(1, 5))]
)
def test_the_right_one_passes_both(tmp_path, seed):
    trial = study(tmp_path, "right", seed=seed)
    assert verify_unit(trial).write().verdict is Verdict.PASS
    record = integrate(trial).write()
    assert record.verdict is Verdict.PASS, record.reason
    assert record.hits["rms_norm"]["hits"] == 12
