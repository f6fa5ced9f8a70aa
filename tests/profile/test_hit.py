from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_profiles import cpu, profile, record

from fusionkit import fusions
from fusionkit.errors import MisuseError
from fusionkit.fusions import FUSIONS, fusion
from fusionkit.profile import families
from fusionkit.profile.hit import check_kernel_hit
from fusionkit.profile.kernel_records import CPU_NOTE
from fusionkit.verdict import Verdict

NORMS = [record("RmsNorm") for _ in range(12)]
WITH = profile(*NORMS, record("RmsNormGrad"), record("MatMulV2"))
WITHOUT = profile(record("Pows"), record("MatMulV2"))


def test_as_many_as_expected() -> None:
    hit = check_kernel_hit(WITH, "rms_norm", 12)
    assert hit.verdict is Verdict.PASS
    assert hit
    assert (hit.count, hit.expected, hit.baseline_count) == (12, 12, None)


@pytest.mark.parametrize("name", ["rms_norm", "other_norm"])
def test_fusions_with_one_op_are_counted_together(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    rows = (*FUSIONS, dataclasses.replace(fusion("rms_norm"), name="other_norm"))
    for module in (fusions, families):
        monkeypatch.setattr(module, "FUSIONS", rows)
    hit = check_kernel_hit(WITH, name, 12)
    assert hit.verdict is Verdict.PASS
    assert hit.reason == "12 launches of rms_norm and other_norm among 14 kernels, as expected"


@pytest.mark.parametrize("expected", [11, 13])
def test_any_other_number_fails_and_both_are_named(expected: int) -> None:
    hit = check_kernel_hit(WITH, "rms_norm", expected)
    assert hit.verdict is Verdict.FAIL
    assert "12 launches" in hit.reason
    assert f"{expected} expected" in hit.reason


def test_the_baseline_must_have_none() -> None:
    assert check_kernel_hit(WITH, "rms_norm", 12, WITHOUT).verdict is Verdict.PASS
    hit = check_kernel_hit(WITH, "rms_norm", 12, WITH)
    assert (hit.verdict, hit.baseline_count) == (Verdict.FAIL, 12)
    assert "baseline has 12" in hit.reason


def test_without_an_expectation_nothing_is_shown() -> None:
    assert check_kernel_hit(WITH, "rms_norm").verdict is Verdict.INCONCLUSIVE
    assert check_kernel_hit(WITH, "rms_norm", None, WITHOUT).verdict is Verdict.INCONCLUSIVE


def test_without_kernels_nothing_is_shown() -> None:
    assert check_kernel_hit(profile(), "rms_norm", 12).verdict is Verdict.INCONCLUSIVE
    assert check_kernel_hit(WITH, "rms_norm", 12, profile()).verdict is Verdict.INCONCLUSIVE


def test_zero_expected_sites() -> None:
    assert check_kernel_hit(WITHOUT, "rms_norm", 0).verdict is Verdict.INCONCLUSIVE
    assert check_kernel_hit(WITH, "rms_norm", 0).verdict is Verdict.FAIL


def test_unread_rows_never_turn_into_a_pass() -> None:
    some = profile(*NORMS, left_out=1)
    assert check_kernel_hit(some, "rms_norm", 12).verdict is Verdict.INCONCLUSIVE
    assert check_kernel_hit(some, "rms_norm", 13).verdict is Verdict.INCONCLUSIVE
    assert check_kernel_hit(some, "rms_norm", 14).verdict is Verdict.FAIL
    assert check_kernel_hit(some, "rms_norm", 11).verdict is Verdict.FAIL
    before = profile(record("Pows"), left_out=1)
    assert check_kernel_hit(WITH, "rms_norm", 12, before).verdict is Verdict.INCONCLUSIVE


def test_a_name_that_the_profile_does_not_use() -> None:
    assert "similar names: RmsNorm" in check_kernel_hit(WITH, "RmsNorms", 12).reason


def test_several_steps_are_mentioned() -> None:
    two = profile(record("RmsNorm", step="1"), record("RmsNorm", step="2"))
    assert "in 2 steps" in check_kernel_hit(two, "rms_norm", 1).reason


def test_unfused_gelu_is_no_hit_on_a_cpu() -> None:
    eager, fused = profile(cpu("aten::gelu", "Gelu")), profile(cpu("npu::npu_gelu", "Gelu"))
    hit = check_kernel_hit(fused, "gelu", 1, eager)
    assert (hit.verdict, hit.count, hit.baseline_count) == (Verdict.PASS, 1, 0)
    assert hit.to_dict()["note"] == CPU_NOTE
    assert check_kernel_hit(eager, "gelu", 1).verdict is Verdict.FAIL


def test_misuse() -> None:
    with pytest.raises(MisuseError, match="negative"):
        check_kernel_hit(WITH, "rms_norm", -1)
    with pytest.raises(MisuseError, match="same target"):
        check_kernel_hit(WITH, "rms_norm", 12, profile(cpu("aten::mul", "Mul")))


def test_to_dict_is_the_command_s_json() -> None:
    answer = check_kernel_hit(WITH, "rms_norm", 12, WITHOUT).to_dict()
    wanted = {"kernel": "rms_norm", "count": 12, "expected": 12, "baseline_count": 0, "verdict": "PASS"}
    assert answer | wanted == answer


@given(st.integers(0, 5), st.integers(0, 5) | st.none(), st.integers(0, 3), st.integers(0, 2))
def test_pass_means_exactly_that(count: int, expected: int | None, before: int, left_out: int) -> None:
    hit = check_kernel_hit(
        profile(*NORMS[:count], record("Mul"), left_out=left_out),
        "rms_norm",
        expected,
        profile(*NORMS[:before], record("Mul")),
    )
    assert bool(hit) == (expected == count and count > 0 and before == 0 and left_out == 0)
