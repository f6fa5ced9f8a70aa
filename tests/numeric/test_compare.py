from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from fusionkit.errors import MisuseError
from fusionkit.numeric.compare import compare_outputs
from fusionkit.numeric.tolerance import Tolerance, ulp
from fusionkit.verdict import Verdict

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
CASES = st.tuples(
    st.sampled_from(DTYPES),
    st.integers(2, 9),
    st.integers(2, 33),
    st.integers(0, 2**20),
    st.floats(-12.0, 6.0),
)


def draw(case: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """A random matrix in float64 (size 2**exponent) and its rounding to the dtype."""
    dtype, rows, width, seed, exponent = case
    generator = torch.Generator().manual_seed(seed)
    exact = torch.randn(rows, width, generator=generator, dtype=torch.float64) * 2.0**exponent
    return exact, exact.to(dtype)


@settings(max_examples=40, deadline=None)
@given(CASES)
def test_an_output_passes_against_itself(case: tuple[Any, ...]) -> None:
    exact, rounded = draw(case)
    for reference in (exact, None):
        found = compare_outputs(rounded, rounded.clone(), reference=reference)
        assert found.verdict is Verdict.PASS, found.reason
        assert found.bit_equal is True
        assert found.max_abs == found.mean_rel == 0.0
        assert found.has_reference is (reference is not None)
        assert ("floor only" in found.reason) is (reference is None)


@settings(max_examples=40, deadline=None)
@given(CASES, st.integers(3, 50), st.booleans())
def test_noise_of_more_ulps_than_allowed_fails(case: tuple[Any, ...], ulps: int, one_element: bool) -> None:
    exact, rounded = draw(case)
    unit = ulp(
        rounded.double().square().mean(-1, keepdim=True).sqrt().maximum(rounded.double().abs()), case[0]
    )
    noise = ulps * unit
    if one_element:
        noise[1:], noise[:, 1:] = 0, 0
    noisy = (rounded.double() + noise).to(case[0])
    found = compare_outputs(rounded, noisy, reference=exact)
    assert found.verdict is Verdict.FAIL
    assert found.max_ulps > found.max_limit_ulps >= found.original_max_ulps


@settings(max_examples=40, deadline=None)
@given(CASES)
def test_noise_within_the_floor_passes(case: tuple[Any, ...]) -> None:
    _, rounded = draw(case)
    exact = rounded.double()
    towards_zero = torch.where(exact.abs() > 0, -exact.sign(), 0.0)
    noisy = (exact + towards_zero * ulp(exact, case[0]) * 0.5).to(case[0])
    assert compare_outputs(rounded, noisy, reference=exact).verdict is Verdict.PASS


@settings(max_examples=40, deadline=None)
@given(CASES)
def test_rows_in_another_order_fail(case: tuple[Any, ...]) -> None:
    exact, rounded = draw(case)
    assert compare_outputs(rounded, rounded.roll(1, 0), reference=exact).verdict is Verdict.FAIL


@settings(max_examples=40, deadline=None)
@given(CASES, st.sampled_from([1.0, 1.004, 1.01]), st.randoms(use_true_random=False))
def test_figures_do_not_depend_on_the_order_of_rows(case: tuple[Any, ...], scale: float, random: Any) -> None:
    exact, rounded = draw(case)
    actual = (exact * scale).to(case[0])
    order = list(range(exact.shape[0]))
    random.shuffle(order)
    one = compare_outputs(rounded, actual, reference=exact)
    other = compare_outputs(rounded[order], actual[order], reference=exact[order])
    assert one.verdict is other.verdict
    for figure in ("mean_ulps", "max_ulps", "original_mean_ulps", "min_cosine", "max_abs", "mean_rel"):
        assert getattr(one, figure) == pytest.approx(getattr(other, figure), rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(DTYPES), st.integers(16, 40), st.integers(16, 64), st.integers(0, 2**20), st.floats(-3, 6)
)
def test_scale_of_one_percent_is_refused(
    dtype: torch.dtype, rows: int, width: int, seed: int, exponent: float
) -> None:
    exact, rounded = draw((dtype, rows, width, seed, exponent))
    found = compare_outputs(rounded, (exact * 1.01).to(dtype), reference=exact)
    assert found.verdict is Verdict.FAIL
    assert found.mean_ulps > 1.2


def test_one_destroyed_row_is_named_though_the_whole_cosine_is_high() -> None:
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(4096, 64, generator=generator, dtype=torch.float64)
    actual = exact.bfloat16()
    actual[17] = 0
    found = compare_outputs(exact.bfloat16(), actual, reference=exact)
    assert found.cosine > 0.999
    assert found.verdict is Verdict.FAIL
    assert found.worst_row == 17
    assert found.reason == "output: cosine 0.000000 of row 17 is below 0.999000"


def test_a_destroyed_small_row_beside_large_ones_is_refused() -> None:
    exact = torch.ones(16, 8, dtype=torch.float64)
    exact[0] = 1e-4
    actual = exact.float()
    actual[0, 0] *= 1.001
    assert compare_outputs(exact.float(), actual, reference=exact).verdict is Verdict.FAIL


def test_seed_threshold_is_reported_and_never_judged_by() -> None:
    exact = torch.randn(32, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    actual = exact.bfloat16()
    actual[::2] = 0
    found = compare_outputs(exact.bfloat16(), actual, reference=exact)
    assert found.cosine_above_seed_threshold is True
    assert found.verdict is Verdict.FAIL
    tiny = compare_outputs(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    assert tiny.cosine_above_seed_threshold is False


def test_the_reason_names_the_rule_and_both_numbers() -> None:
    exact = torch.full((4, 8), 1.75, dtype=torch.float64)
    found = compare_outputs(exact.bfloat16(), (exact * 1.02).bfloat16(), reference=exact)
    assert found.reason == "output: mean error 4 ulp exceeds 1 (2 x the original's, here 0; at least 1)"
    one = exact.clone()
    one[0, 0] += 4 * 2.0**-7
    found = compare_outputs(exact.bfloat16(), one.bfloat16(), reference=exact, name="y")
    assert found.reason == "y: max error 4 ulp exceeds 1 (2 x the original's, here 0; at least 1)"


def test_a_worse_original_widens_the_limits() -> None:
    exact = torch.full((4, 8), 1.5, dtype=torch.float64)
    step = 2.0**-7
    original, actual = (exact + 2 * step).bfloat16(), (exact + 4 * step).bfloat16()
    assert compare_outputs(original, actual, reference=exact).verdict is Verdict.PASS
    assert compare_outputs(original, (exact + 5 * step).bfloat16(), reference=exact).verdict is Verdict.FAIL
    assert compare_outputs(exact.bfloat16(), actual, reference=exact).verdict is Verdict.FAIL
    known = {"output": (2.0, 2.0)}
    widened = compare_outputs(exact.bfloat16(), actual, reference=exact, original_ulps=known)
    assert widened.verdict is Verdict.PASS
    assert (widened.mean_limit_ulps, widened.original_mean_ulps) == (4.0, 0.0)


def test_cancellation_is_measured_in_ulps_of_its_row() -> None:
    exact = torch.ones(2, 8, dtype=torch.float64)
    exact[:, 0] = 1e-9
    actual = exact.float()
    actual[:, 0] = 3e-8  # half an ulp of 1.0, a quarter of a billion of the element's own
    assert compare_outputs(exact.float(), actual, reference=exact).verdict is Verdict.PASS


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_inf_must_be_where_they_are_expected(bad: float) -> None:
    clean = torch.ones(2, 4)
    broken = clean.clone()
    broken[0, 1] = bad
    reference = clean.double()
    found = compare_outputs(clean, broken, reference=reference)
    assert found.verdict is Verdict.FAIL
    assert "NaN or Inf disagrees at 1 elements" in found.reason
    assert (found.nan_count + found.inf_count, found.expected_nan_count + found.expected_inf_count) == (1, 0)
    assert compare_outputs(broken, broken.clone(), reference=broken.double()).verdict is Verdict.PASS
    moved = broken.roll(1, 1)
    assert compare_outputs(broken, moved, reference=broken.double()).verdict is Verdict.FAIL


def test_inf_of_another_sign_and_nan_for_inf_fail() -> None:
    expected = torch.tensor([[1.0, math.inf]])
    for other in (-math.inf, math.nan):
        assert compare_outputs(expected, torch.tensor([[1.0, other]])).verdict is Verdict.FAIL


def test_a_replacement_that_does_not_overflow_where_the_original_does_passes() -> None:
    reference = torch.tensor([[1.0, 300.0]], dtype=torch.float64)
    expected = torch.tensor([[1.0, math.inf]], dtype=torch.float16)
    assert compare_outputs(expected, reference.half(), reference=reference).verdict is Verdict.PASS
    wrong = torch.tensor([[1.0, 400.0]], dtype=torch.float16)
    assert compare_outputs(expected, wrong, reference=reference).verdict is Verdict.FAIL


@pytest.mark.parametrize("width", [0, 3])
def test_nothing_to_compare_is_inconclusive(width: int) -> None:
    for tensor in (torch.zeros(width, 4), torch.full((2, width), math.nan)):
        found = compare_outputs(tensor, tensor.clone())
        assert found.verdict is Verdict.INCONCLUSIVE
        assert not found
    for tree in ([], {}, [None], ()):
        assert compare_outputs(tree, tree).verdict is Verdict.INCONCLUSIVE


def test_tensors_without_values_are_inconclusive() -> None:
    meta = torch.ones(2, device="meta")
    with FakeTensorMode():
        fake = torch.ones(2)
    for tensor in (meta, fake):
        found = compare_outputs(tensor, tensor)
        assert found.verdict is Verdict.INCONCLUSIVE
        assert "no values" in found.reason


def test_shape_and_dtype_mismatch_fail() -> None:
    one = torch.ones(2, 3)
    shape = compare_outputs(one, torch.ones(2, 3, 1))
    assert (shape.verdict, shape.reason) == (Verdict.FAIL, "output: shape (2, 3, 1), expected (2, 3)")
    dtype = compare_outputs(one, one.bfloat16())
    assert dtype.reason == "output: dtype torch.bfloat16, expected torch.float32"
    assert dtype.verdict is Verdict.FAIL


def test_a_reference_of_another_shape_is_inconclusive() -> None:
    one = torch.ones(2, 3)
    assert compare_outputs(one, one, reference=torch.ones(3, 2).double()).verdict is Verdict.INCONCLUSIVE


def test_integers_booleans_and_plain_values_are_compared_exactly() -> None:
    expected = {"index": torch.tensor([1, 2]), "mask": torch.tensor([True]), "n": 3, "none": None}
    same = compare_outputs(expected, {**expected})
    assert same.verdict is Verdict.PASS
    assert [output.name for output in same.outputs] == ["output['index']", "output['mask']", "output['n']"]
    other = compare_outputs(expected, {**expected, "index": torch.tensor([1, 4])})
    assert other.verdict is Verdict.FAIL
    assert "differ, by up to 2" in other.reason
    assert compare_outputs(expected, {**expected, "n": 4}).verdict is Verdict.FAIL
    assert compare_outputs([1.0], [1]).verdict is Verdict.FAIL
    assert compare_outputs([math.nan], [math.nan]).verdict is Verdict.PASS
    assert compare_outputs([torch.ones(1)], [None]).verdict is Verdict.FAIL


def test_structures_must_agree_but_list_and_tuple_are_alike() -> None:
    one, two = torch.ones(2), torch.full((2,), 2.0)
    assert compare_outputs((one, [two]), [one, (two,)]).verdict is Verdict.PASS
    missing = compare_outputs((one, two), (one,))
    assert missing.verdict is Verdict.FAIL
    assert missing.reason == "output[1] exists in expected only: 2 outputs expected, 1 found"
    assert compare_outputs({"a": one, "b": two}, {"b": two, "a": one}).verdict is Verdict.PASS


def test_several_outputs_give_the_worst_figures_and_the_deciding_reason() -> None:
    exact = torch.full((2, 4), 1.5, dtype=torch.float64)
    good, bad = exact.bfloat16(), (exact * 1.1).bfloat16()
    found = compare_outputs((good, good), (good, bad), reference=(exact, exact))
    assert found.verdict is Verdict.FAIL
    assert found.reason.startswith("output[1]: mean error")
    assert found.max_ulps == found.outputs[1].max_ulps > found.outputs[0].max_ulps
    assert found.bit_equal is False
    assert found.elements == 16
    both = compare_outputs((good, good), (good, good), reference=(exact, exact))
    assert both.reason.startswith("2 outputs pass; the largest error: output[0]: mean error 0 <= 1 ulp")
    assert compare_outputs([good], [good], reference=[exact]).reason.startswith("output[0]: mean error")


def test_leaves_that_are_no_tensors_are_misuse() -> None:
    with pytest.raises(MisuseError, match="object is neither a tensor nor a plain value"):
        compare_outputs([object()], [object()])


def test_dtype_gate_sets_the_unit_and_float64_is_judged_in_float32() -> None:
    exact = torch.full((2, 4), 1.5, dtype=torch.float64)
    coarse = exact.float() * (1 + 2.0**-9)
    assert compare_outputs(exact.float(), coarse, reference=exact).verdict is Verdict.FAIL
    gated = compare_outputs(exact.float(), coarse, reference=exact, dtype_gate=torch.bfloat16)
    assert gated.verdict is Verdict.PASS
    assert compare_outputs(exact, exact * (1 + 1e-9), reference=exact).verdict is Verdict.PASS
    assert compare_outputs(exact, exact * (1 + 1e-5), reference=exact).verdict is Verdict.FAIL


def test_complex_outputs_are_compared() -> None:
    value = torch.complex(torch.ones(2, 3), torch.full((2, 3), 2.0))
    assert compare_outputs(value, value.clone()).verdict is Verdict.PASS
    assert compare_outputs(value, value.conj()).verdict is Verdict.FAIL


def test_a_scalar_output_is_one_row() -> None:
    assert compare_outputs(torch.tensor(1.5), torch.tensor(1.5)).verdict is Verdict.PASS
    assert compare_outputs(torch.tensor(1.5), torch.tensor(1.51)).verdict is Verdict.FAIL


def test_subnormal_rows_are_judged_by_error_alone() -> None:
    exact = torch.tensor([[3.3, 5.4, 7.5, -2.4], [1e6, 2e6, 3e6, 4e6]], dtype=torch.float64) * 2.0**-24
    rounded = exact.half()
    found = compare_outputs(rounded, rounded.clone(), reference=exact)
    assert (found.negligible_rows, found.judged_rows) == (1, 1)
    assert found.verdict is Verdict.PASS
    off = rounded.clone()
    off[0, 0] += 3 * 2.0**-24
    assert compare_outputs(rounded, off, reference=exact).verdict is Verdict.FAIL


def test_to_dict_is_finite_json() -> None:
    nan = torch.tensor([[math.nan, 1.0]])
    record = compare_outputs((nan, torch.ones(2, dtype=torch.int64)), (torch.ones(1, 2), nan)).to_dict()
    text = json.dumps(record, allow_nan=False)
    assert json.loads(text)["verdict"] == "FAIL"
    assert record["schema"] == 1
    assert record["outputs"][0]["max_ulps"] is None
    assert record["outputs"][0]["shape"] == [1, 2]


def test_tolerance_is_obeyed() -> None:
    exact = torch.full((2, 4), 1.5, dtype=torch.float64)
    actual = (exact + 2 * 2.0**-7).bfloat16()
    assert compare_outputs(exact.bfloat16(), actual, reference=exact).verdict is Verdict.FAIL
    loose = Tolerance(floor_ulps=2.0)
    assert compare_outputs(exact.bfloat16(), actual, reference=exact, tolerance=loose).verdict is Verdict.PASS
