"""Right and wrong replacements of real classes of transformers and diffusers: the right ones pass, the others fail."""

from __future__ import annotations

from functools import cache

import pytest
from hand_written_replacements import installed, rewritten, site_of
from proved_texts import shared_server

from fusionkit.identify.proving import Proof, prove, prove_file
from fusionkit.identify.replacing import replace_site
from fusionkit.identify.source.files import SourceFile
from fusionkit.verdict import Verdict

LLAMA = "transformers.models.llama.modeling_llama"
MIXTRAL = "transformers.models.mixtral.modeling_mixtral"
PROCESSORS = "diffusers.models.attention_processor"
EMBEDDINGS = "diffusers.models.embeddings"

NORM = "return torch_npu.npu_rms_norm(hidden_states, self.weight, self.variance_epsilon)"
GATE = """
both = torch.cat(({}), dim=-1)
down_proj = self.down_proj(torch_npu.npu_swiglu(both, dim=-1))
return down_proj
"""
ROTATE = """
q_embed = torch_npu.npu_rotary_mul(q, cos, sin{0})
k_embed = torch_npu.npu_rotary_mul(k, cos, sin{0})
"""
EAGER = """
dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else query.dtype
mask = None
if attention_mask is not None:
    mask = (attention_mask {0} 0).expand(query.shape[0], 1, query.shape[2], key.shape[2]).contiguous()
attn_output = torch_npu.npu_fusion_attention(
    query.to(dtype), key.to(dtype), value.to(dtype), query.shape[1], "BNSD", atten_mask=mask{1}
)[0].transpose(1, 2).contiguous()
return attn_output, None
"""
SDPA = """
dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else query.dtype
mask = None
if attention_mask is not None:
    mask = attention_mask.expand(query.shape[0], attn.heads, query.shape[2], key.shape[2])
    mask = ({0}mask if mask.dtype is torch.bool else mask < 0).contiguous()
hidden_states = torch_npu.npu_fusion_attention(
    query.to(dtype), key.to(dtype), value.to(dtype), query.shape[1], "BNSD", atten_mask=mask{1}
)[0]
"""
INTERLEAVED = 'return torch_npu.npu_rotary_mul(x.float(), cos, sin, rotary_mode="{}").to(x.dtype)'
EXPERTS = """
dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else hidden_states.dtype
tokens, order = torch_npu.npu_moe_token_permute(hidden_states.to(dtype), top_k_index.to(torch.int32))
counts = torch.bincount(top_k_index.reshape(-1), minlength=self.num_experts)
first = torch_npu.npu_grouped_matmul(
    [tokens], [self.gate_up_proj.to(dtype).transpose(1, 2)], group_list=counts, split_item=3, group_type=0,
    group_list_type=1,
)[0]
gate, up = first.chunk(2, dim=-1)
second = torch_npu.npu_grouped_matmul(
    [self.act_fn(gate) * up], [self.down_proj.to(dtype).transpose(1, 2)], group_list=counts, split_item=3,
    group_type=0, group_list_type=1,
)[0]
return torch_npu.npu_moe_token_unpermute(second, order{0}).to(hidden_states.dtype)
"""

# case -> (symbol, op, first line, last line, fused code, text behind which the lines stand)
LLAMA_NORM = ("LlamaRMSNorm", "npu_rms_norm", "input_dtype =", "return self.weight")
LLAMA_MLP = ("LlamaMLP", "npu_swiglu", "down_proj =", "return down_proj")
LLAMA_ROPE = ("apply_rotary_pos_emb", "npu_rotary_mul", "q_embed =", "k_embed =")
LLAMA_EAGER = ("eager_attention_forward", "npu_fusion_attention", "key_states =", "return attn_output")
SDPA_SITE = ("AttnProcessor2_0", "npu_fusion_attention", "hidden_states = F.scaled_dot", ")")
FLUX_ROPE = ("apply_rotary_emb", "npu_rotary_mul", "x_real, x_imag", "x_rotated =")
MOE = ("MixtralExperts", "npu_grouped_matmul", "final_hidden_states =", "return final_hidden_states")
ABOVE = {LLAMA_EAGER: "def eager_attention_forward", SDPA_SITE: "class AttnProcessor2_0"}

RIGHT = {
    "rms norm": (LLAMA, LLAMA_NORM, NORM + "[0]"),
    "swiglu": (LLAMA, LLAMA_MLP, GATE.format("self.gate_proj(x), self.up_proj(x)")),
    "rope half": (LLAMA, LLAMA_ROPE, ROTATE.format("")),
    "eager attention": (LLAMA, LLAMA_EAGER, EAGER.format("<", ", scale=scaling")),
    "rope interleaved": (EMBEDDINGS, FLUX_ROPE, INTERLEAVED.format("interleave")),
    "sdpa attention": (PROCESSORS, SDPA_SITE, SDPA.format("~", ", scale=head_dim**-0.5")),
    "experts": (MIXTRAL, MOE, EXPERTS.format(", probs=top_k_weights.to(dtype)")),
}
WRONG = {
    "rms norm, tuple not unpacked": (LLAMA, LLAMA_NORM, NORM),
    "rms norm, dtype lost": (LLAMA, LLAMA_NORM, NORM + "[0].float()"),
    "swiglu, halves swapped": (LLAMA, LLAMA_MLP, GATE.format("self.up_proj(x), self.gate_proj(x)")),
    "rope half, mode swapped": (LLAMA, LLAMA_ROPE, ROTATE.format(', rotary_mode="interleave"')),
    "eager attention, mask inverted": (LLAMA, LLAMA_EAGER, EAGER.format(">=", ", scale=scaling")),
    "eager attention, scale left at 1": (LLAMA, LLAMA_EAGER, EAGER.format("<", "")),
    "rope interleaved, tables rounded": (
        EMBEDDINGS,
        FLUX_ROPE,
        INTERLEAVED.format("interleave").replace(
            "x.float(), cos, sin", "x, cos.to(x.dtype), sin.to(x.dtype)"
        ),
    ),
    "rope interleaved, mode swapped": (EMBEDDINGS, FLUX_ROPE, INTERLEAVED.format("half")),
    "sdpa attention, mask inverted": (PROCESSORS, SDPA_SITE, SDPA.format("", ", scale=head_dim**-0.5")),
    "sdpa attention, scale left at 1": (PROCESSORS, SDPA_SITE, SDPA.format("~", "")),
    "experts, weights left out": (MIXTRAL, MOE, EXPERTS.format("")),
    "experts, not run at all": (MIXTRAL, MOE, "return torch.zeros_like(hidden_states)"),
}


@cache
def proofs(module: str) -> dict[str, Proof]:
    """Every replacement of one file, proved in one process."""
    path = installed(module)
    told = {name: row for name, row in (RIGHT | WRONG).items() if row[0] == module}
    replacements = []
    for _, (symbol, op, first, last), fused in told.values():
        after = ABOVE.get(
            (symbol, op, first, last), f"class {symbol}" if symbol[0].isupper() else f"def {symbol}"
        )
        text = rewritten(path, first, last, fused, after, module.partition(".")[0])
        replacements.append((site_of(path, symbol, op), text))
    return dict(zip(told, prove_file(path, replacements, server=shared_server()), strict=True))


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_replacement_passes_in_every_dtype_and_under_autocast(name):
    proof = proofs(RIGHT[name][0])[name]
    assert proof.verdict is Verdict.PASS, proof.reason
    passing = {(run.dtype, run.autocast) for run in proof.runs if run.verdict is Verdict.PASS}
    assert passing == {("float32", False), ("bfloat16", False), ("float32", True)}
    assert all(run.fused_calls for run in proof.runs if run.verdict is Verdict.PASS)
    assert all(run.output_dtypes for run in proof.runs)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_replacement_fails(name):
    proof = proofs(WRONG[name][0])[name]
    assert proof.verdict is Verdict.FAIL, proof.reason


def test_gradients_are_compared_where_the_op_has_a_backward_only():
    assert all(run.training or "every scale" in run.case for run in proofs(LLAMA)["rms norm"].runs)
    assert not any(run.training for run in proofs(MIXTRAL)["experts"].runs)


def test_weights_that_a_fused_branch_does_not_return_are_told():
    proof = proofs(LLAMA)["eager attention"]
    assert all(run.not_returned == ("output[1]",) for run in proof.runs)
    assert all("output[1] is not returned" in run.reason for run in proof.runs)


def test_masks_and_heads_are_varied():
    runs = proofs(LLAMA)["eager attention"].runs
    masks = {run.case.partition(",")[0] for run in runs}
    assert {"plain", "additive causal mask", "additive causal mask with padding"} <= masks
    shapes = {(run.shapes["query"][1], run.shapes["key"][1], run.shapes["query"][3]) for run in runs}
    assert len(shapes) == 2
    assert all(heads > kv_heads for heads, kv_heads, _ in shapes)
    assert {run.shapes["query"][2] % 2 for run in runs} == {0, 1}


def test_what_was_forced_is_told():
    assert proofs(LLAMA)["eager attention"].forced == ("attention: eager",)
    assert proofs(MIXTRAL)["experts"].forced == ("experts: eager",)
    assert proofs(LLAMA)["swiglu"].forced == ()


@pytest.mark.parametrize("model", ["llama", "qwen3", "mistral"])
def test_decoder_layers_are_given_what_models_give_them(model):
    module = f"transformers.models.{model}.modeling_{model}"
    symbol = f"{model.capitalize()}DecoderLayer"
    proof = prove(
        *replaced_here(module, symbol, "npu_add_rms_norm"), dtypes=("float32",), server=shared_server()
    )
    assert proof.verdict is Verdict.PASS, proof.reason
    assert any(run.fused_calls for run in proof.runs)


def replaced_here(module, symbol, op):
    path = installed(module)
    file = SourceFile(path, path.read_text("utf-8"))
    site = site_of(path, symbol, op)
    return path, site, replace_site(file, site).new_text
