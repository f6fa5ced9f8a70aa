from __future__ import annotations

import json

import torch
from torch import Tensor

from fusionkit.numeric.sensitivity import SCALES, noise_floor, smallest_visible_scale
from fusionkit.numeric.tolerance import Tolerance
from fusionkit.verdict import Verdict

EXACT = torch.randn(64, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def noisy(dtype: torch.dtype, relative: float) -> Tensor:
    """An original that errs by `relative` of each value, as a deep model in a low precision does."""
    noise = torch.randn(EXACT.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return (EXACT * (1 + relative * noise)).to(dtype)


def test_a_clean_site_sees_a_third_of_a_percent_in_bfloat16_and_all_in_float32() -> None:
    for dtype, smallest in ((torch.bfloat16, 1.003), (torch.float32, 1.001)):
        found = smallest_visible_scale(lambda s, d=dtype: (EXACT * s).to(d), EXACT.to(dtype), EXACT)
        assert found.smallest == smallest
        assert found.verdict is Verdict.PASS
        assert [row.scale for row in found.rows] == [1.0, *SCALES]


def test_a_noisy_model_hides_what_a_clean_site_shows() -> None:
    original = noisy(torch.bfloat16, 0.02)
    found = smallest_visible_scale(
        lambda s: (noisy(torch.bfloat16, 0.02).double() * s).bfloat16(), original, EXACT
    )
    assert found.smallest is not None
    assert found.smallest > 1.01
    assert [row.verdict for row in found.rows][:4] == [Verdict.PASS] * 4


def test_a_gate_that_sees_nothing_says_so() -> None:
    loose = Tolerance(k=1e9, floor_ulps=1e9)
    found = smallest_visible_scale(lambda s: (EXACT * s).float(), EXACT.float(), EXACT, loose)
    assert found.smallest is None
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.reason == "no scale defect up to 2 is refused"
    none = smallest_visible_scale(lambda s: (EXACT * s).float(), EXACT.float(), EXACT, scales=())
    assert none.verdict is Verdict.INCONCLUSIVE


def test_a_gate_that_refuses_the_unscaled_run_shows_nothing() -> None:
    found = smallest_visible_scale(lambda s: (EXACT * s * 1.1).float(), EXACT.float(), EXACT)
    assert (found.smallest, found.verdict) == (None, Verdict.INCONCLUSIVE)
    assert found.reason.startswith("the unscaled run is FAIL: output: mean error")


def test_a_scale_counts_only_if_every_larger_one_is_refused_too() -> None:
    def run(scale: float) -> Tensor:
        return (EXACT * (1.0 if scale == 1.1 else scale)).float()

    assert smallest_visible_scale(run, EXACT.float(), EXACT).smallest == 1.3


def test_only_a_refusal_counts() -> None:
    def run(scale: float) -> Tensor:
        return EXACT.float() if scale == 1.0 else EXACT.float().to("meta")

    found = smallest_visible_scale(run, EXACT.float(), EXACT)
    assert (found.smallest, found.verdict) == (None, Verdict.INCONCLUSIVE)
    assert {row.verdict for row in found.rows[1:]} == {Verdict.INCONCLUSIVE}


def test_scales_are_tried_in_order_and_the_record_is_json() -> None:
    found = smallest_visible_scale(
        lambda s: (EXACT * s).float(), EXACT.float(), EXACT, scales=(2.0, 1.00000001, 1.5)
    )
    assert [row.scale for row in found.rows] == [1.0, 1.00000001, 1.5, 2.0]
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record["smallest"] == 1.5
    assert record["rows"][0]["verdict"] == "PASS"


def test_noise_floor() -> None:
    equal = noise_floor(lambda: [EXACT, EXACT], lambda: (EXACT, EXACT.clone()))
    assert (equal.verdict, equal.bit_equal, equal.max_abs) == (Verdict.PASS, True, 0.0)
    shifted = EXACT.clone()
    shifted[3, 4] += 0.25
    noisy_run = noise_floor(lambda: EXACT, lambda: shifted)
    assert (noisy_run.verdict, noisy_run.bit_equal) == (Verdict.INCONCLUSIVE, False)
    assert abs(noisy_run.max_abs - 0.25) < 1e-12
    assert json.loads(json.dumps(noisy_run.to_dict(), allow_nan=False))["verdict"] == "INCONCLUSIVE"


def test_noise_floor_of_nothing_or_of_other_shapes() -> None:
    assert noise_floor(lambda: [], lambda: []).verdict is Verdict.INCONCLUSIVE
    assert noise_floor(lambda: EXACT, lambda: EXACT[1:]).verdict is Verdict.FAIL
    empty = torch.ones(0)
    assert noise_floor(lambda: empty, lambda: empty).verdict is Verdict.INCONCLUSIVE
