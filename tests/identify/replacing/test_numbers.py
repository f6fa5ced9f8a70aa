"""Replacements on real classes: the same numbers and the same dtypes as the original, on target cpu."""

from __future__ import annotations

import importlib
import types
from pathlib import Path

import pytest
import torch
from replaced_modules import replaced, site_of, twin

from fusionkit.identify.replacing import Refused, replace_site
from fusionkit.identify.source.files import SourceFile

LLAMA = "transformers.models.llama.modeling_llama"
COHERE = "transformers.models.cohere.modeling_cohere"
GEMMA = "transformers.models.gemma2.modeling_gemma2"
T5 = "transformers.models.t5.modeling_t5"
MOE = "transformers.models.qwen3_moe.modeling_qwen3_moe"
OSS = "transformers.models.gpt_oss.modeling_gpt_oss"
DTYPES = (torch.float32, torch.bfloat16)
STEP = {torch.float32: 2e-5, torch.bfloat16: 0.04}


def both(
    name: str, symbol: str, op: str, facade: object
) -> tuple[types.ModuleType, types.ModuleType, list[str]]:
    calls: list[str] = []
    return (
        importlib.import_module(name),
        twin(name, replaced(name, symbol, op).new_text, facade, calls),
        calls,
    )


def draw(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    assert one.dtype == other.dtype
    assert one.shape == other.shape
    assert (one.float() - other.float()).abs().max() <= STEP[one.dtype] * max(
        1.0, one.float().abs().max().item()
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "symbol", "cls"),
    [
        (LLAMA, "LlamaRMSNorm", "LlamaRMSNorm"),
        (T5, "T5LayerNorm", "T5LayerNorm"),
        (GEMMA, "Gemma2RMSNorm._norm", "Gemma2RMSNorm"),
    ],
)
def test_norms_agree(name, symbol, cls, dtype, facade):
    original, new, calls = both(name, symbol, "npu_rms_norm", facade)
    modules = [getattr(module, cls)(32).to(dtype) for module in (original, new)]
    for module in modules:
        module.weight.data = draw(32, dtype=dtype)
    x = draw(2, 5, 32, dtype=dtype)
    close(modules[0](x), modules[1](x))
    assert calls == ["npu_rms_norm"]


def test_norm_runs_as_written_where_its_result_is_promoted(facade):
    original, new, calls = both(LLAMA, "LlamaRMSNorm", "npu_rms_norm", facade)
    x = draw(2, 5, 32, dtype=torch.bfloat16)
    close(original.LlamaRMSNorm(32)(x), new.LlamaRMSNorm(32)(x))
    assert calls == []


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "batch"), [(LLAMA, 2), (COHERE, 1)])
def test_rotations_agree(name, batch, dtype, facade):
    original, new, calls = both(name, "apply_rotary_pos_emb", "npu_rotary_mul", facade)
    q, k = draw(batch, 4, 6, 16, dtype=dtype), draw(batch, 2, 6, 16, dtype=dtype)
    cos, sin = draw(batch, 6, 16, dtype=dtype), draw(batch, 6, 16, dtype=dtype)
    for one, other in zip(
        original.apply_rotary_pos_emb(q, k, cos, sin), new.apply_rotary_pos_emb(q, k, cos, sin), strict=True
    ):
        close(one, other)
    assert calls == ["npu_rotary_mul"] * 2


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [LLAMA, GEMMA])
def test_eager_attention_agrees(name, dtype, masked, facade):
    original, new, calls = both(name, "eager_attention_forward", "npu_fusion_attention", facade)
    q, k, v = (draw(2, heads, 5, 16, dtype=dtype) for heads in (4, 2, 2))
    mask = torch.full((2, 1, 5, 5), torch.finfo(dtype).min, dtype=dtype).triu(1) if masked else None
    module = types.SimpleNamespace(num_key_value_groups=2, training=False, head_dim=16)
    ours = new.eager_attention_forward(module, q, k, v, mask, scaling=0.3)
    close(original.eager_attention_forward(module, q, k, v, mask, scaling=0.3)[0], ours[0])
    assert ours[1] is None
    assert calls == ["npu_fusion_attention"]


def test_attention_under_autocast_has_autocasts_dtype(facade):
    original, new, _ = both(LLAMA, "eager_attention_forward", "npu_fusion_attention", facade)
    q, k, v = (draw(1, heads, 5, 16, dtype=torch.float32) for heads in (4, 2, 2))
    module = types.SimpleNamespace(num_key_value_groups=2, training=False)
    with torch.autocast("cpu", torch.bfloat16):
        results = [m.eager_attention_forward(module, q, k, v, None, scaling=0.25)[0] for m in (original, new)]
    close(*results)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_dropout_in_training_leaves_it_to_the_original(dropout, facade):
    _, new, calls = both(LLAMA, "eager_attention_forward", "npu_fusion_attention", facade)
    q, k, v = (draw(1, heads, 5, 16, dtype=torch.float32) for heads in (4, 2, 2))
    module = types.SimpleNamespace(num_key_value_groups=2, training=True)
    new.eager_attention_forward(module, q, k, v, None, scaling=0.25, dropout=dropout)
    assert calls == ([] if dropout else ["npu_fusion_attention"])


def experts(module: types.ModuleType, cls: str, config: object, dtype: torch.dtype) -> torch.nn.Module:
    made = getattr(module, cls)(config)
    for index, parameter in enumerate(made.parameters()):
        parameter.data = draw(*parameter.shape, index + 1, dtype=torch.float32)[..., 0].to(dtype) * 0.2
    return made.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", ["qwen", "gpt_oss"])
def test_experts_agree(case, dtype, facade):
    if case == "qwen":
        from transformers import Qwen3MoeConfig

        name, cls = MOE, "Qwen3MoeExperts"
        config = Qwen3MoeConfig(hidden_size=16, moe_intermediate_size=8, num_experts=6, num_experts_per_tok=2)
    else:
        from transformers import GptOssConfig

        name, cls = OSS, "GptOssExperts"
        config = GptOssConfig(hidden_size=16, intermediate_size=8, num_local_experts=6, num_experts_per_tok=2)
    config._experts_implementation = "eager"
    original, new, calls = both(name, cls, "npu_grouped_matmul", facade)
    modules = [experts(module, cls, config, dtype) for module in (original, new)]
    x = draw(7, 16, dtype=dtype)
    index = torch.tensor(
        [[0, 1], [1, 4], [4, 0], [1, 0], [4, 1], [0, 4], [1, 4]]
    )  # experts 2, 3 and 5 are empty
    weights = draw(7, 2, dtype=dtype).softmax(-1)
    with torch.no_grad():
        close(*(module(x, index, weights) for module in modules))
    assert calls.count("npu_grouped_matmul") == 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_gates_agree(dtype, facade):
    from transformers import LlamaConfig

    config = LlamaConfig(hidden_size=16, intermediate_size=24, num_attention_heads=2, num_key_value_heads=2)
    original, new, calls = both(LLAMA, "LlamaMLP", "npu_swiglu", facade)
    modules = [module.LlamaMLP(config).to(dtype) for module in (original, new)]
    modules[1].load_state_dict(modules[0].state_dict())
    x = draw(3, 16, dtype=dtype)
    close(modules[0](x), modules[1](x))
    assert calls == ["npu_swiglu"]
    config.hidden_act = "relu"
    calls.clear()
    new.LlamaMLP(config).to(dtype)(x)
    assert calls == []


DISPATCHED = "diffusers.models.transformers.transformer_flux"


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("additive", [False, True])
def test_a_mask_of_keys_is_taken_as_the_dispatched_attention_takes_it(batch, additive, facade):
    original, new, calls = both(DISPATCHED, "FluxAttnProcessor", "npu_fusion_attention", facade)
    attention = original.FluxAttention(32, heads=2, dim_head=16).eval()
    states = draw(batch, 6, 32, dtype=torch.float32)
    mask = torch.ones(batch, 6, dtype=torch.bool)
    mask[-1, 4:] = False
    if additive:
        mask = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    results = [m.FluxAttnProcessor()(attention, states, attention_mask=mask) for m in (original, new)]
    close(*results)
    assert calls == ["npu_fusion_attention"]


EMBEDDINGS = "diffusers.models.embeddings"
LTX = "diffusers.models.transformers.transformer_ltx"


@pytest.mark.parametrize("dim", [-1, -2])
@pytest.mark.parametrize("sequence_dim", [1, 2])
def test_neighbours_or_halves_are_chosen_as_the_original_chooses(dim, sequence_dim, facade):
    original, new, calls = both(EMBEDDINGS, "apply_rotary_emb", "npu_rotary_mul", facade)
    shape = (2, 3, 6, 16) if sequence_dim == 2 else (2, 6, 3, 16)
    x, tables = (
        draw(*shape, dtype=torch.float32),
        (draw(6, 16, dtype=torch.float32), draw(6, 16, dtype=torch.float32)),
    )
    results = [m.apply_rotary_emb(x, tables, True, dim, sequence_dim) for m in (original, new)]
    close(*results)
    assert calls == ["npu_rotary_mul"]


def test_a_layout_that_neither_branch_knows_is_an_error_in_both(facade):
    for module in both(EMBEDDINGS, "apply_rotary_emb", "npu_rotary_mul", facade)[:2]:
        with pytest.raises(ValueError, match="use_real_unbind_dim=3"):
            module.apply_rotary_emb(torch.ones(1, 2, 4, 8), (torch.ones(4, 8),) * 2, True, 3)


@pytest.mark.parametrize("sizes", [(2, 4, 6), (250, 4, 2)])
def test_a_rotation_of_sizes_that_the_op_does_not_take_runs_as_written(sizes, facade):
    original, new, calls = both(COHERE, "apply_rotary_pos_emb", "npu_rotary_mul", facade)
    batch, heads, length = sizes
    q, k = draw(batch, heads, length, 8, dtype=torch.float32), draw(batch, 2, length, 8, dtype=torch.float32)
    own = 1 if batch == 250 else batch  # cos of each sequence, or batch times heads of 1000
    cos, sin = draw(own, length, 8, dtype=torch.float32), draw(own, length, 8, dtype=torch.float32)
    for one, other in zip(
        original.apply_rotary_pos_emb(q, k, cos, sin), new.apply_rotary_pos_emb(q, k, cos, sin), strict=True
    ):
        close(one, other)
    assert calls == []


def test_a_rotation_over_all_heads_at_once_is_refused():
    path = Path(importlib.import_module(LTX).__file__)
    file = SourceFile(path, path.read_text("utf-8"))
    result = replace_site(file, site_of(file, "apply_rotary_emb", "npu_rotary_mul"))
    assert isinstance(result, Refused)
    assert "over all heads at once" in result.reason


@pytest.mark.parametrize("sizes", [(6, 3, 16), (2, 6, 3, 16)])
def test_cos_without_a_batch_fits_with_and_without_one(sizes, facade):
    original, new, calls = both(
        "transformers.models.qwen2_vl.modeling_qwen2_vl",
        "apply_rotary_pos_emb_vision",
        "npu_rotary_mul",
        facade,
    )
    q, k = draw(*sizes, dtype=torch.float32), draw(*sizes, dtype=torch.float32) + 1
    cos, sin = draw(6, 16, dtype=torch.float32), draw(6, 16, dtype=torch.float32) + 1
    for one, other in zip(
        original.apply_rotary_pos_emb_vision(q, k, cos, sin),
        new.apply_rotary_pos_emb_vision(q, k, cos, sin),
        strict=True,
    ):
        close(one, other)
    assert calls == ["npu_rotary_mul"] * 2


@pytest.mark.parametrize("half", ["weights", "input"])
def test_norms_and_gates_under_autocast_have_the_originals_dtype(half, facade):
    for symbol, op, sizes in (("LlamaRMSNorm", "npu_rms_norm", 32), ("LlamaMLP", "npu_swiglu", None)):
        original, new, _ = both(LLAMA, symbol, op, facade)
        config = original.LlamaConfig(hidden_size=32, intermediate_size=48)
        modules = [getattr(m, symbol)(sizes or config) for m in (original, new)]
        modules[1].load_state_dict(modules[0].state_dict())
        x = draw(2, 5, 32, dtype=torch.bfloat16 if half == "input" else torch.float32)
        if half == "weights":
            modules = [module.to(torch.bfloat16) for module in modules]
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            close(*(module(x) for module in modules))
