"""What the site gate refuses and what it lets pass: the primitives with right replacements and seeded defects."""

from __future__ import annotations

import pytest
import torch
from seeded_defects import EPS, NORM, PRIMITIVES, RIGHT, WRONG, norm, norm_once

from fusionkit.numeric.compare import compare_outputs
from fusionkit.numeric.reference import run_float64
from fusionkit.numeric.replay import SiteReplay, replay_site
from fusionkit.verdict import Verdict

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def replayed(name: str, label: str, dtype: torch.dtype, seed: int) -> SiteReplay:
    case = PRIMITIVES[name]
    replacement = {**case.right, **case.wrong}[label]
    inputs = case.inputs(dtype, 1000 + seed)
    return replay_site(case.original, replacement, inputs, seed=seed, activations=case.activations)


def test_there_are_sixty_defects_and_twenty_right_ones() -> None:
    assert len(set(WRONG)) >= 60
    assert len(set(RIGHT)) >= 20


@pytest.mark.parametrize(("name", "label"), WRONG)
def test_a_defect_is_refused(name: str, label: str) -> None:
    replay = replayed(name, label, torch.bfloat16, 0)
    assert replay.verdict is Verdict.FAIL, replay.reason


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(("name", "label"), RIGHT)
def test_a_right_replacement_passes(name: str, label: str, dtype: torch.dtype) -> None:
    replay = replayed(name, label, dtype, 0)
    assert replay.verdict is Verdict.PASS, replay.reason


@pytest.mark.acceptance
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_five_seeds_tell_all_apart(dtype: torch.dtype, seed: int) -> None:
    verdicts = {pair: replayed(*pair, dtype, seed).verdict for pair in (*WRONG, *RIGHT)}
    assert [pair for pair in WRONG if verdicts[pair] is not Verdict.FAIL] == []
    assert [pair for pair in RIGHT if verdicts[pair] is not Verdict.PASS] == []


@pytest.mark.parametrize("shape", [(1, 24, 2, 16), (1, 16, 32), (2, 8, 128)], ids=str)
def test_every_defect_but_eps_shows_on_the_own_inputs_alone(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(shape, generator=generator) * 1.7).bfloat16()
    w = (1 + 0.3 * torch.randn(shape[-1], generator=generator)).bfloat16()
    expected, reference = norm(x, w), run_float64(norm, [x, w])
    verdicts = {
        label: compare_outputs(expected, NORM.wrong[label](x, w), reference=reference).verdict
        for label in ("eps of 1e-2", "scaled by 1.01", "two rows zeroed", "gain lost")
    }
    # why replay_site looks at small inputs too: here 0.2 % are less than one bfloat16 ulp
    assert verdicts.pop("eps of 1e-2") is Verdict.PASS
    assert set(verdicts.values()) == {Verdict.FAIL}


def test_float32_norm_over_a_single_row_is_not_refused_by_chance() -> None:
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        inputs = [torch.randn(1, 64, generator=generator), 1 + 0.3 * torch.randn(64, generator=generator)]
        replay = replay_site(norm, norm_once, inputs, eps=EPS, seed=seed)
        assert replay.verdict is Verdict.PASS, replay.reason
