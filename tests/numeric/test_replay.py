from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from fusionkit.errors import MisuseError
from fusionkit.numeric.counterexample import Search
from fusionkit.numeric.replay import replay_site
from fusionkit.numeric.samples import clone, random_like
from fusionkit.verdict import Verdict


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    h = x.float()
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


def inputs(rows: int = 40) -> list[Any]:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(rows, 24, generator=generator)
    return [x.bfloat16(), (1 + 0.3 * torch.randn(24, generator=generator)).bfloat16(), 1e-6]


def test_regimes_and_record() -> None:
    found = replay_site(norm, norm, inputs(), eps=1e-5, seed=3, name="blocks.0.norm")
    assert [regime.regime for regime in found.regimes] == [
        "own",
        "mean_square=1",
        "mean_square=0.01",
        "mean_square=1e-05",
    ]
    assert (found.verdict, bool(found)) == (Verdict.PASS, True)
    assert found.reason.startswith("4 sets of inputs pass; no counterexample in ")
    assert found.activations == (0,)
    assert all(regime.comparison and regime.comparison.has_reference for regime in found.regimes)
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (record["schema"], record["name"], record["seed"]) == (1, "blocks.0.norm", 3)
    assert record["regimes"][0]["comparison"]["bit_equal"] is True


def test_eps_defaults_to_one_millionth() -> None:
    assert replay_site(norm, norm, inputs(), seed=0).regimes[-1].mean_square == 1e-6
    assert replay_site(norm, norm, inputs(), seed=0, eps=0.0).regimes[-1].mean_square == 1e-6


def test_one_seed_gives_one_result_and_another_seed_other_inputs() -> None:
    def rounded_twice(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return weight * norm(x, torch.ones_like(weight), eps)

    first, again, other = (replay_site(norm, rounded_twice, inputs(), seed=s).to_dict() for s in (1, 1, 2))
    assert first == again
    assert first["regimes"][1] != other["regimes"][1]
    assert first["regimes"][0] == other["regimes"][0]


def seen_by(activations: tuple[int, ...] | None, values: list[Any], seed: int = 0) -> list[list[Any]]:
    """The inputs of every call of the replacement."""
    seen: list[list[Any]] = []

    def record(*received: Any) -> Tensor:
        seen.append([clone(value) for value in received])
        return received[0] * 1

    searched = Search(Verdict.PASS, "of an equal site", {}, ())
    assert replay_site(
        lambda *received: received[0] * 1,
        record,
        values,
        activations=activations,
        seed=seed,
        search=searched,
    )
    return seen


def test_drawn_inputs_keep_shape_strides_and_dtype_and_have_the_mean_square() -> None:
    base = torch.ones(64, 40, dtype=torch.float16)
    values = [base.t(), base[:, :7], base[:1].expand(64, 40), torch.full((9,), 7.0), torch.tensor(3), 0.5]
    own, *drawn = reversed(seen_by(None, values))
    for regime, mean_square in zip(reversed(drawn), (1.0, 1e-2, 1e-6), strict=True):
        for index in (0, 1, 2):
            assert regime[index].shape == values[index].shape
            assert regime[index].stride() == values[index].stride()
            assert regime[index].dtype is torch.float16
            square = regime[index].double().square().mean().item()
            assert square == pytest.approx(mean_square, rel=0.5 if index == 2 else 0.2)
        assert regime[3].tolist() == [7.0] * 9
        assert (regime[4].item(), regime[5]) == (3, 0.5)
    assert torch.equal(own[0], values[0])


def test_given_activations_are_the_only_inputs_drawn() -> None:
    values = [torch.ones(40, 4), torch.ones(40, 4), torch.ones(4)]
    for regime in seen_by((1, 2), values)[:3]:
        assert torch.equal(regime[0], values[0])
        assert not torch.equal(regime[1], values[1])
        assert not torch.equal(regime[2], values[2])


def test_vectors_are_drawn_where_no_input_has_two_dims() -> None:
    assert replay_site(torch.relu, torch.relu, [torch.ones(5)], seed=0).activations == (0,)


def test_without_floating_inputs_only_the_own_ones_are_replayed() -> None:
    found = replay_site(lambda i: i.float(), lambda i: i.float(), [torch.tensor([1, 2])], seed=0)
    assert [regime.regime for regime in found.regimes] == ["own"]
    assert found.verdict is Verdict.PASS


@pytest.mark.parametrize("index", [1, 7])
def test_an_index_that_is_no_floating_tensor_is_misuse(index: int) -> None:
    with pytest.raises(MisuseError, match=f"input {index} is no floating tensor; floating ones are \\[0\\]"):
        replay_site(torch.relu, torch.relu, [torch.ones(2), 3], activations=[index], seed=0)


@pytest.mark.parametrize(("rows", "calls"), [(1, 1 + 3 * 32), (16, 1 + 3 * 2), (32, 4), (33, 4)])
def test_few_rows_are_drawn_more_often(rows: int, calls: int) -> None:
    assert len(seen_by(None, [torch.ones(rows, 4)])) == calls


def test_a_few_own_rows_are_judged_by_the_originals_error_elsewhere() -> None:
    step = 2.0**-7

    def original(x: Tensor) -> Tensor:
        return x if x.abs().max() == 1.5 else (x.float() * (1 + 3 * step)).bfloat16()

    def off_by_two_ulps(x: Tensor) -> Tensor:
        return (x.float() * (1 + 2 * step)).bfloat16()

    def exact(x: Tensor) -> Tensor:
        return x if x.dtype is torch.float64 else original(x)

    few = replay_site(exact, off_by_two_ulps, [torch.full((1, 8), 1.5).bfloat16()], seed=0)
    many = replay_site(exact, off_by_two_ulps, [torch.full((64, 8), 1.5).bfloat16()], seed=0)
    assert few.regimes[0].verdict is Verdict.PASS
    assert many.regimes[0].verdict is Verdict.FAIL


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("shape\nstack"),
        ValueError("v"),
        TypeError("t"),
        KeyError("k"),
        MisuseError("npu: refused"),
    ],
    ids=repr,
)
def test_a_replacement_that_raises_fails_and_an_original_that_raises_shows_nothing(error: Exception) -> None:
    def broken(*values: Any) -> Tensor:
        raise error

    found = replay_site(norm, broken, inputs(), seed=0)
    assert found.verdict is Verdict.FAIL
    assert found.reason.startswith(f"own: the replacement raised {type(error).__name__}: ")
    assert "\n" not in found.reason
    unknown = replay_site(broken, norm, inputs(), seed=0)
    assert unknown.verdict is Verdict.INCONCLUSIVE
    assert "the original raised" in unknown.reason


def test_an_error_that_is_not_about_the_inputs_is_not_swallowed() -> None:
    def interrupted(*values: Any) -> Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay_site(norm, interrupted, inputs(), seed=0)


def test_writing_to_an_input_fails_on_either_side_and_the_own_inputs_stay() -> None:
    def in_place(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        result = norm(x, weight, eps)
        weight.add_(1)
        return result

    values = inputs()
    before = [clone(value) for value in values]
    for original, replacement, side in ((norm, in_place, "replacement"), (in_place, norm, "original")):
        found = replay_site(original, replacement, values, seed=0)
        assert found.verdict is Verdict.FAIL
        assert found.reason == f"own: the {side} writes to its inputs [1]"
    assert torch.equal(values[0], before[0])
    assert torch.equal(values[1], before[1])


def test_several_outputs_are_compared_each() -> None:
    def pair(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x.float().square().mean(-1, keepdim=True)

    def wrong_second(x: Tensor) -> list[Tensor]:
        return [x * 2, x.float().square().mean(-1, keepdim=True) * 1.01]

    for rows in (3, 40):
        value = [torch.randn(rows, 8, generator=torch.Generator().manual_seed(0)).bfloat16()]
        assert replay_site(pair, pair, value, seed=0).verdict is Verdict.PASS
        found = replay_site(pair, wrong_second, value, seed=0, name="site")
        assert found.verdict is Verdict.FAIL
        assert "site[1]" in found.reason


def test_a_defect_of_one_regime_decides() -> None:
    def breaks_when_small(x: Tensor) -> Tensor:
        return x * 1.1 if x.abs().max() < 0.5 else x * 1

    found = replay_site(lambda x: x * 1, breaks_when_small, [torch.ones(40, 8)], seed=0)
    assert found.verdict is Verdict.FAIL
    assert found.regimes[1].verdict is Verdict.PASS
    assert found.regimes[2].reason.startswith("site: mean error")
    assert found.search is not None
    assert found.search.counterexample
    assert found.search.counterexample.regime == "mean square 1e-2"


def test_dtype_gate_reaches_the_comparison() -> None:
    def coarse(x: Tensor) -> Tensor:
        return (x * 1).bfloat16().float()

    value = [torch.randn(40, 8, generator=torch.Generator().manual_seed(0))]
    assert replay_site(lambda x: x * 1, coarse, value, seed=0).verdict is Verdict.FAIL
    gated = replay_site(lambda x: x * 1, coarse, value, seed=0, dtype_gate=torch.bfloat16)
    assert gated.verdict is Verdict.PASS
    assert gated.to_dict()["dtype_gate"] == "torch.bfloat16"


def test_inputs_without_values_are_inconclusive() -> None:
    with FakeTensorMode():
        fake = torch.ones(40, 4)
    for value in (fake, torch.ones(40, 4, device="meta")):
        found = replay_site(torch.relu, torch.relu, [value], seed=0)
        assert found.verdict is Verdict.INCONCLUSIVE
        assert found.reason == "own: fake or meta inputs carry no values"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.permutations(range(4)), st.integers(0, 3))
def test_copies_keep_values_and_strides(shape: list[int], order: list[int], offset: int) -> None:
    dims = [dim for dim in order if dim < len(shape)]
    base = torch.arange(offset + 4**4, dtype=torch.float32)[offset:]
    tensor = base[: torch.Size(shape).numel()].reshape(shape).permute(dims)
    for value in (tensor, tensor[..., ::2], tensor[:1].expand(3, *tensor.shape[1:])):
        copied = clone(value)
        assert torch.equal(copied, value)
        assert copied.stride() == value.stride()
        assert copied.data_ptr() != value.data_ptr()
        drawn = random_like(value, 1.0, torch.Generator().manual_seed(0))
        assert (drawn.shape, drawn.stride()) == (value.shape, value.stride())
