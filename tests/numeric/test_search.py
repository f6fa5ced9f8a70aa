"""The counterexample search: wrong replacements are refused with the input that shows it, right ones pass."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch.fx.experimental.proxy_tensor import make_fx

from fusionkit.config import CompilationConfig
from fusionkit.errors import MisuseError
from fusionkit.npu.target import use_target
from fusionkit.numeric.bounds import alone, bounds_of, trace
from fusionkit.numeric.counterexample import Counterexample, load_counterexample
from fusionkit.numeric.layouts import size_literals
from fusionkit.numeric.search import search_counterexample
from fusionkit.passes.compiled import pattern_groups
from fusionkit.passes.registering import argument_names, real_inputs, scalars_of
from fusionkit.verdict import Verdict

use_target("cpu")
NPU = torch.ops.npu
BF16 = torch.bfloat16


def norm(x, w, eps=1e-6):
    h = x.float()
    return w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def fused_norm(x, w, eps=1e-6):
    return NPU.npu_rms_norm(x, w, eps)[0]


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


def draw(*shape, dtype=BF16, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


X, W = draw(2, 12, 48), draw(48, seed=1)
GATE, UP = draw(2, 8, 64, seed=2), draw(2, 8, 64, seed=3)
HEADS, TABLE = draw(2, 6, 4, 16, seed=4), draw(1, 6, 16, seed=5).expand(2, -1, -1).contiguous()
PADDING = torch.zeros(2, 12, dtype=torch.bool)
PLACES = torch.arange(12)


def state_of_first_call():
    kept = []

    def replacement(x, w):
        kept.append(w.clone())
        return fused_norm(x, kept[0])

    return replacement


def noise(x, w):
    return fused_norm(x, w) + torch.rand(()).to(x.dtype) * 0.25


def other_when_traced(x, w):
    return fused_norm(x, w * 2 if torch.compiler.is_compiling() or _is_traced() else w)


def _is_traced():
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    return get_proxy_mode() is not None


# name -> original, replacement, inputs, what the reason names
WRONG = {
    "norm clamped at 9": (lambda x, w: norm(x, w).clamp(-9.0, 9.0), fused_norm, (X, W), "1e4"),
    "norm clamped at float16's largest": (
        lambda x, w: norm(x, w).clamp(-65504.0, 65504.0), fused_norm, (X, W), "argument"),
    "norm with a soft cap": (lambda x, w: torch.tanh(norm(x, w) / 30.0) * 30.0, fused_norm, (X, W), "argument"),
    "norm cleaned of NaN": (lambda x, w: torch.nan_to_num(norm(x, w)), fused_norm, (X, W), "NaN"),
    "norm with a least variance": (
        lambda x, w: w * (x.float() * x.float().pow(2).mean(-1, True).clamp(min=1e-6).rsqrt()).to(x.dtype),
        fused_norm, (X, W), "mean square"),
    "norm with another eps": (norm, lambda x, w: fused_norm(x, w, 1e-5), (X, W), "mean square"),
    "norm of a gain without sign": (norm, lambda x, w: fused_norm(x, w.abs()), (X, W.abs()), "argument 1"),
    "norm of a gain that loses its low bits": (norm, lambda x, w: fused_norm(x, (w + 300) - 300), (X, W), "own"),
    "norm of the first call's gain": (norm, state_of_first_call(), (X, W), "argument 1"),
    "norm of the capture's gain": (norm, lambda x, w: fused_norm(x, W), (X, W), "argument 1"),
    "norm with noise": (norm, noise, (X, W), ""),
    "norm that is another one when traced": (norm, other_when_traced, (X, W), "traced"),
    "norm that writes to its input": (
        norm, lambda x, w: (fused_norm(x, w), x.mul_(1))[0], (X, W), "writes to its inputs"),
    "masked norm without the mask": (
        lambda x, w, m: norm(x, w).masked_fill(m[..., None], 0.0), lambda x, w, m: fused_norm(x, w),
        (X, W, PADDING), "argument 2"),
    "masked norm with the inverse mask": (
        lambda x, w, m: norm(x, w).masked_fill(m[..., None], 0.0),
        lambda x, w, m: fused_norm(x, w).masked_fill(~m[..., None], 0.0), (X, W, PADDING), "expected"),
    "gathered norm without the places": (
        lambda x, w, i: norm(x[:, i], w), lambda x, w, i: fused_norm(x, w), (X, W, PLACES), "argument 2"),
    "limited SwiGLU": (
        lambda g, u: F.silu(g.clamp(max=7.0)) * u.clamp(-7.0, 7.0),
        lambda g, u: NPU.npu_swiglu(torch.cat((g, u), -1)), (GATE, UP), "argument"),
    "SwiGLU with its halves swapped": (
        lambda g, u: F.silu(g) * u, lambda g, u: NPU.npu_swiglu(torch.cat((u, g), -1)), (GATE, UP), "own"),
    "erf GELU as tanh GELU": (F.gelu, lambda x: F.gelu(x, approximate="tanh"), (draw(4, 64),), "ulp"),
    "capped GELU": (
        lambda x: F.gelu(x, approximate="tanh").clamp(max=6.0), lambda x: F.gelu(x, approximate="tanh"),
        (draw(4, 64),), "argument 0"),
    "rotation by the first sample's tables": (
        lambda x, c, s: rotate(x, c[:, :, None], s[:, :, None]),
        lambda x, c, s: NPU.npu_rotary_mul(x, c[:1, :, None], s[:1, :, None]), (HEADS, TABLE, TABLE), "argument"),
    "an output that is its input": (lambda x: x * 1, lambda x: x, (X,), "shares its memory"),
    "a batch mean of the first sample": (
        lambda x: x - x.mean(-1, True), lambda x: x - x[:1].mean(-1, True), (X[:1].expand(2, -1, -1),), "dim 0"),
    "a fixed number of rows": (
        lambda x: x * 2, lambda x: torch.cat((x[:, :12] * 2, x[:, 12:] * 3), 1), (X,), "257 in place of 12"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_replacement_is_refused_with_the_input_that_shows_it(name):
    original, replacement, inputs, named = WRONG[name]
    search = search_counterexample(original, replacement, inputs, seed=0)
    assert search.verdict is Verdict.FAIL, search.reason
    assert named in search.reason
    shown = search.counterexample
    assert shown is not None
    assert len(shown.inputs) == len(inputs)
    if shown.expected:
        pairs = zip(shown.expected, shown.actual, strict=True)
        assert any(a != b and not (math.isnan(a) and math.isnan(b)) for a, b in pairs)


RIGHT = {
    "norm": (norm, fused_norm, (X, W)),
    "norm clamped on both sides": (
        lambda x, w: norm(x, w).clamp(-9.0, 9.0), lambda x, w: fused_norm(x, w).clamp(-9.0, 9.0), (X, W)),
    "masked norm": (
        lambda x, w, m: norm(x, w).masked_fill(m[..., None], 0.0),
        lambda x, w, m: fused_norm(x, w).masked_fill(m[..., None], 0.0), (X, W, PADDING)),
    "SwiGLU": (
        lambda g, u: F.silu(g) * u, lambda g, u: NPU.npu_swiglu(torch.cat((g, u), -1)), (GATE, UP)),
    "relu6": (lambda x: x.clamp(0.0, 6.0), F.relu6, (X,)),
    "rotation": (
        lambda x, c, s: rotate(x, c[:, :, None], s[:, :, None]),
        lambda x, c, s: NPU.npu_rotary_mul(x, c[:, :, None], s[:, :, None]), (HEADS, TABLE, TABLE)),
    "clamp at what no value exceeds": (lambda x: x.abs().clamp(min=-1.0) * 2, lambda x: x.abs() * 2, (X,)),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_replacement_passes(name, seed):
    search = search_counterexample(*RIGHT[name], seed=seed)
    assert search.verdict is Verdict.PASS, search.reason


@pytest.mark.parametrize("seed", range(1))
def test_every_pattern_of_the_kit_passes(seed):
    groups = pattern_groups(CompilationConfig())
    for variant in (variant for group in groups.values() for variant in group):
        names, scalars = argument_names(variant), scalars_of(variant)
        tensors = [name for name in names if name not in scalars]

        def caller(function, names=names, scalars=scalars):
            def call(*given):
                values = iter(given)
                return function(*(1e-6 if name in scalars else next(values) for name in names))

            return call

        functions = caller(variant.pattern), caller(variant.replacement)
        search = search_counterexample(*functions, real_inputs(variant, seed), seed=seed, names=tensors)
        assert search.verdict is Verdict.PASS, f"{variant.name()}: {search.reason}"


def test_a_counterexample_is_made_small_written_and_read_again(tmp_path):
    search = search_counterexample(*WRONG["capped GELU"][:3], seed=0, names=("x",))
    shown = search.counterexample
    assert shown is not None
    (x,) = shown.inputs
    assert x.shape == (1, 64)  # cut from 4 rows
    path = shown.write(tmp_path / "gelu.safetensors")
    again = load_counterexample(path)
    assert again == shown
    assert torch.equal(again.inputs[0], x)
    original, replacement = WRONG["capped GELU"][:2]
    assert (original(*again.inputs) - replacement(*again.inputs)).abs().max() > 1


def test_a_counterexample_keeps_strides_nan_and_literals(tmp_path):
    inputs = (torch.arange(6.0).reshape(2, 3).t(), torch.ones(1, 4).expand(3, 4), 7, None)
    shown = Counterexample("x", "own", 0, (math.nan,), (1.0,), "differs", ("a", "b", "c", "d"), inputs)
    again = load_counterexample(shown.write(tmp_path / "c.safetensors"))
    assert [x.stride() for x in again.inputs[:2]] == [(1, 3), (0, 1)]
    assert all(torch.equal(a, b) for a, b in zip(again.inputs[:2], inputs[:2], strict=True))
    assert again.inputs[2:] == (7, None)
    assert math.isnan(again.expected[0])


def test_a_file_that_is_no_counterexample_is_misuse(tmp_path):
    path = tmp_path / "c.safetensors"
    for content in (b"", b"\0" * 40, save({"0": torch.ones(2)})):
        path.write_bytes(content)
        with pytest.raises(MisuseError, match=r"c\.safetensors: no counterexample"):
            load_counterexample(path)


class Detached(torch.autograd.Function):
    """The right values with the gradient of the gain halved."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return norm(x, w)

    @staticmethod
    def backward(ctx, grad):
        with torch.enable_grad():
            x, w = (value.detach().requires_grad_() for value in ctx.saved_tensors)
            left, right = torch.autograd.grad(norm(x, w), (x, w), grad)
        return left, right / 2


def test_gradients_are_compared_in_training():
    wrong = search_counterexample(norm, Detached.apply, (X, W), seed=0, train=True)
    assert wrong.verdict is Verdict.FAIL
    assert "gradients" in wrong.reason
    assert search_counterexample(norm, Detached.apply, (X, W), seed=0).verdict is Verdict.PASS
    right = search_counterexample(norm, fused_norm, (X, W), seed=0, train=True)
    assert right.verdict is Verdict.PASS, right.reason
    assert len(right.exercised["gradients"]) == 4


def test_a_replacement_without_a_gradient_is_refused_in_training():
    search = search_counterexample(norm, lambda x, w: norm(x, w).detach(), (X, W), seed=0, train=True)
    assert search.verdict is Verdict.FAIL
    assert "the replacement has no gradient" in search.reason


def test_indices_are_drawn_over_the_sizes_of_the_other_inputs():
    table, zeros = draw(12, 16), torch.zeros(6, dtype=torch.int64)
    search = search_counterexample(
        lambda t, i: t[i] * 2, lambda t, i: t[:1].expand(6, -1) * 2, (table, zeros), seed=0
    )
    assert search.verdict is Verdict.FAIL
    assert "whole numbers from 0 to 11" in search.reason


def test_complex_arguments_are_drawn():
    x, turn = torch.randn(4, 8, dtype=torch.complex64), torch.ones(4, 8, dtype=torch.complex64)
    search = search_counterexample(lambda a, b: a * b, lambda a, b: a * b.real, (x, turn), seed=0)
    assert search.verdict is Verdict.FAIL
    assert "argument 1" in search.reason


def test_sizes_that_a_graph_is_made_for_stay():
    graph = make_fx(lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1])(draw(3, 32))
    literals = size_literals(graph.graph.nodes)
    assert literals == {16}
    search = search_counterexample(
        graph, lambda x: NPU.npu_swiglu(x, -1), (draw(3, 32),), seed=0, literals=literals
    )
    assert search.verdict is Verdict.PASS, search.reason
    assert any("257 in place of 3" in line for line in search.exercised["layouts"])
    assert not any("1032" in line for line in search.exercised["layouts"])


def test_a_pass_lists_what_was_exercised_and_what_was_not():
    search = search_counterexample(norm, fused_norm, (X, W), seed=0, names=("x", "weight"))
    assert set(search.exercised["arguments"]) >= {"x", "weight", "all arguments"}
    assert "rows of mean square 1e-8 to 1e8" in search.exercised["regimes"]
    assert "transposed in memory" in search.exercised["layouts"]
    assert any("zero throughout" in line for line in search.not_exercised)
    assert search.to_dict()["exercised"]["arguments"][0] == "the site's own"


def test_two_searches_of_one_seed_agree():
    first, second = (search_counterexample(*WRONG["limited SwiGLU"][:3], seed=4) for _ in range(2))
    assert first.to_dict() == second.to_dict()


def test_a_bound_of_one_side_alone_that_is_not_reached_decides_nothing():
    def original(x):
        return torch.where(x.sigmoid() > 2.0, 0.0, x * 2)

    search = search_counterexample(original, lambda x: x * 2, (draw(4, 8),), seed=0)
    assert search.verdict is Verdict.INCONCLUSIVE
    assert search.reason == "comparison 2 stands in one side alone; no value above it"


def test_inputs_without_values_decide_nothing():
    search = search_counterexample(norm, fused_norm, (X.to("meta"), W.to("meta")), seed=0)
    assert search.verdict is Verdict.INCONCLUSIVE
    assert "carry no values" in search.reason


def test_the_bounds_of_two_computations_are_held_against_each_other():
    def first(x):
        return torch.tanh(x.clamp(-7.0, 7.0) / 50.0) * 50.0

    graphs = trace(first, (X,)), trace(lambda x: x.clamp(min=-7.0), (X,))
    bounds = [bounds_of(graph) for graph in graphs]
    assert [str(b) for b in bounds[0]] == ["clamp min -7", "clamp max 7", "soft cap 1", "soft cap -1"]
    assert [str(b) for b in alone(*bounds)] == ["clamp max 7", "soft cap 1", "soft cap -1"]
