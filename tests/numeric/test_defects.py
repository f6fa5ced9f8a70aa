"""What the site gate refuses and what it lets pass: real primitives, correct rewrites, known defects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fusionkit.numeric.compare import compare_outputs
from fusionkit.numeric.reference import run_float64
from fusionkit.numeric.replay import replay_site
from fusionkit.verdict import Verdict

SEEDS = range(5)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
SHAPES = ((1, 24, 2, 16), (1, 16, 32), (2, 8, 128))
EPS = 1e-6


def rms_cast_before_gamma(x: Tensor, weight: Tensor, eps: float = EPS) -> Tensor:
    """LlamaRMSNorm of transformers."""
    h = x.to(torch.float32)
    variance = h.pow(2).mean(-1, keepdim=True)
    return weight * (h * torch.rsqrt(variance + eps)).to(x.dtype)


def rms_cast_after_gamma(x: Tensor, weight: Tensor, eps: float = EPS) -> Tensor:
    """torch.nn.RMSNorm, decomposed."""
    h = x.float()
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


def rms_fused(x: Tensor, weight: Tensor, eps: float = EPS) -> Tensor:
    """Another order of the same arithmetic in float32, rounded once, as fused kernels do it."""
    h = x.float()
    rstd = 1.0 / torch.sqrt((h * h).sum(-1, keepdim=True) / h.shape[-1] + eps)
    return (h * rstd * weight.float()).to(x.dtype)


def rms_fused_cast_before_gamma(x: Tensor, weight: Tensor) -> Tensor:
    """The fused order, rounded where LlamaRMSNorm rounds."""
    h = x.float()
    return (h / torch.sqrt((h * h).sum(-1, keepdim=True) / h.shape[-1] + EPS)).to(x.dtype) * weight


def two_rows_zeroed(x: Tensor, weight: Tensor) -> Tensor:
    y = rms_fused(x, weight)
    rows = y.reshape(-1, y.shape[-1])
    assert rows.shape[0] >= 16
    rows[3], rows[-1] = 0, 0
    return y


def scaled(fn: Callable[..., Tensor], scale: float = 1.01) -> Callable[..., Tensor]:
    """The defect of an output off by one percent."""
    return lambda *inputs: (fn(*inputs).float() * scale).to(inputs[0].dtype)


DEFECTS: dict[str, Callable[..., Tensor]] = {
    "scaled": scaled(rms_fused),
    "two_rows_zeroed": two_rows_zeroed,
    "eps": lambda x, weight: rms_fused(x, weight, 1e-2),
    "gain_lost": lambda x, weight: rms_fused(x, torch.ones_like(weight)),
}
RMS_FORMS = (rms_cast_before_gamma, rms_cast_after_gamma)


def rms_inputs(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1000 + seed)
    x = torch.randn(shape, generator=generator) * 1.7
    weight = 1 + 0.3 * torch.randn(shape[-1], generator=generator)
    return [x.to(dtype), weight.to(dtype)]


@pytest.mark.parametrize("original", RMS_FORMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_correct_rms_norm_passes(dtype: torch.dtype, original: Any) -> None:
    for seed in SEEDS:
        inputs = rms_inputs(SHAPES[seed % 3], dtype, seed)
        found = replay_site(original, rms_fused, inputs, eps=EPS, seed=seed)
        assert found.verdict is Verdict.PASS, found.reason
        if original is rms_cast_before_gamma:
            found = replay_site(original, rms_fused_cast_before_gamma, inputs, eps=EPS, seed=seed)
            assert found.verdict is Verdict.PASS, found.reason


@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.parametrize("original", RMS_FORMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_defective_rms_norm_is_refused(dtype: torch.dtype, original: Any, defect: str) -> None:
    for seed in SEEDS:
        inputs = rms_inputs(SHAPES[seed % 3], dtype, seed)
        found = replay_site(original, DEFECTS[defect], inputs, eps=EPS, seed=seed)
        assert found.verdict is Verdict.FAIL, (seed, found.reason)
        assert "exceeds" in found.reason or "is below" in found.reason


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_defect_but_eps_shows_on_the_own_inputs_alone(shape: tuple[int, ...]) -> None:
    inputs = rms_inputs(shape, torch.bfloat16, 0)
    expected, reference = rms_cast_before_gamma(*inputs), run_float64(rms_cast_before_gamma, inputs)
    verdicts = {
        name: compare_outputs(expected, defect(*inputs), reference=reference).verdict
        for name, defect in DEFECTS.items()
    }
    # why replay_site looks at small inputs too: here 0.2 % are less than one bfloat16 ulp
    assert verdicts.pop("eps") is Verdict.PASS
    assert set(verdicts.values()) == {Verdict.FAIL}


def test_float32_norm_over_a_single_row_is_not_refused_by_chance() -> None:
    for seed in range(2):
        inputs = rms_inputs((1, 64), torch.float32, seed)
        found = replay_site(rms_cast_after_gamma, rms_fused, inputs, seed=seed)
        assert found.verdict is Verdict.PASS, found.reason


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def swiglu_fused(gate: Tensor, up: Tensor) -> Tensor:
    h = gate.float()
    return (h / (1 + torch.exp(-h)) * up.float()).to(gate.dtype)


def swiglu_as_eager(gate: Tensor, up: Tensor) -> Tensor:
    h = gate.float()
    return (h / (1 + torch.exp(-h))).to(gate.dtype) * up


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """diffusers' apply_rotary_emb: interleaved pairs, float32 inside."""
    real, imag = x.unflatten(-1, (-1, 2)).unbind(-1)
    rotated = torch.stack((-imag, real), dim=-1).flatten(-2)
    return (x.float() * cos + rotated.float() * sin).to(x.dtype)


def rope_fused(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    real, imag = x.double().unflatten(-1, (-1, 2)).unbind(-1)
    turned = (real * cos[..., ::2] - imag * sin[..., ::2], imag * cos[..., 1::2] + real * sin[..., 1::2])
    return torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)


def modulated_norm(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale[:, None]) + shift[:, None]


def modulated_norm_fused(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    h = x.float() - x.float().mean(-1, keepdim=True)
    h = h / torch.sqrt((h * h).mean(-1, keepdim=True) + 1e-6)
    return (h * (1 + scale.float()[:, None]) + shift.float()[:, None]).to(x.dtype)


def modulated_norm_as_eager(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    zero = torch.zeros_like(scale)
    return modulated_norm_fused(x, zero, zero) * (1 + scale[:, None]) + shift[:, None]


def gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def gelu_written_out(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))


def gelu_fused(x: Tensor) -> Tensor:
    h = x.float()
    return (h * torch.sigmoid(1.5957691216057308 * (h + 0.044715 * h * h * h))).to(x.dtype)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def rope_inputs(dtype: torch.dtype, seed: int) -> list[Tensor]:
    angle = (3 * normal(1, 16, 1, 8, seed=seed)).repeat_interleave(2, -1)
    return [normal(1, 16, 2, 16, seed=seed + 50).to(dtype), angle.cos(), angle.sin()]


@dataclass(frozen=True)
class Primitive:
    """An original, a fused form rounded once, one rounded as the original is, inputs, which are activations."""

    original: Callable[..., Tensor]
    fused: Callable[..., Tensor]
    as_eager: Callable[..., Tensor]
    inputs: Callable[[torch.dtype, int], list[Tensor]]
    activations: tuple[int, ...] | None = None


PRIMITIVES = {
    "swiglu": Primitive(
        swiglu,
        swiglu_fused,
        swiglu_as_eager,
        lambda d, s: [normal(2, 16, 48, seed=s + i).to(d) for i in (0, 70)],
    ),
    "rope": Primitive(rope, rope_fused, rope, rope_inputs, (0,)),
    "modulated_norm": Primitive(
        modulated_norm,
        modulated_norm_fused,
        modulated_norm_as_eager,
        lambda d, s: [
            (1.5 * normal(2, 16, 64, seed=s) + 0.3).to(d),
            (0.5 * normal(2, 64, seed=s + 50)).to(d),
            (0.5 * normal(2, 64, seed=s + 70)).to(d),
        ],
        (0,),
    ),
    "gelu": Primitive(gelu, gelu_fused, gelu, lambda d, s: [2 * normal(2, 16, 64, seed=s).to(d)]),
    "gelu_written_out": Primitive(
        gelu_written_out, gelu_fused, gelu_written_out, lambda d, s: [2 * normal(2, 16, 64, seed=s).to(d)]
    ),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PRIMITIVES)
def test_correct_primitives_pass_and_one_percent_is_refused(name: str, dtype: torch.dtype) -> None:
    case = PRIMITIVES[name]
    for seed in SEEDS:
        inputs = case.inputs(dtype, seed)
        right = replay_site(case.original, case.fused, inputs, seed=seed, activations=case.activations)
        assert right.verdict is Verdict.PASS, right.reason
        expected, reference = case.original(*inputs), run_float64(case.original, inputs)
        as_eager = compare_outputs(expected, case.as_eager(*inputs), reference=reference)
        assert as_eager.verdict is Verdict.PASS, as_eager.reason
        for fn in (case.fused, case.as_eager):
            wrong = compare_outputs(expected, scaled(fn)(*inputs), reference=reference)
            assert wrong.verdict is Verdict.FAIL, (seed, wrong.reason)
