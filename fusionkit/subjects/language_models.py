"""Rows of the table: causal language models, without and with experts that tokens are routed to."""

from __future__ import annotations

from functools import partial
from typing import Any

from fusionkit.counters import experts_gate, rotation, rotation_of_q_and_k
from fusionkit.subjects.inputs import language
from fusionkit.subjects.spec import SubjectSpec

_causal_model = partial(SubjectSpec, extent={"text": (16, 2048)}, inputs=language)
_ALTERNATING = ["sliding_attention", "full_attention"]


def _yarn(theta: float, factor: float, original: int, **more: Any) -> dict[str, Any]:
    """YaRN's rotary parameters for `factor` times the `original` number of positions."""
    return {
        "rope_type": "yarn",
        "rope_theta": theta,
        "factor": factor,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "original_max_position_embeddings": original,
        **more,
    }


_LLAMA = _causal_model(
    name="llama",
    model="transformers:LlamaForCausalLM",
    configuration="transformers:LlamaConfig",
    sizes={
        "vocab_size": (128, 128256),
        "hidden_size": (64, 4096),
        "intermediate_size": (128, 14336),
        "num_hidden_layers": (2, 32),
        "num_attention_heads": (4, 32),
        "num_key_value_heads": (2, 8),
        "max_position_embeddings": (64, 8192),
    },
    same={
        "rms_norm_eps": 1e-05,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
        "tie_word_embeddings": False,
    },
    sources=("Llama-3-8B with 2 layers", "meta-llama/Meta-Llama-3-8B config.json; 2048 tokens"),
    primitives=("rms_norm", "rope", "swiglu"),
    counters=(rotation_of_q_and_k("transformers.models.llama.modeling_llama"),),
)

_QWEN3 = _causal_model(
    name="qwen3",
    model="transformers:Qwen3ForCausalLM",
    configuration="transformers:Qwen3Config",
    sizes={
        "vocab_size": (128, 151936),
        "hidden_size": (64, 4096),
        "intermediate_size": (128, 12288),
        "num_hidden_layers": (2, 36),
        "num_attention_heads": (4, 32),
        "num_key_value_heads": (2, 8),
        "head_dim": (16, 128),
        "max_position_embeddings": (64, 40960),
    },
    same={
        "rms_norm_eps": 1e-06,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        "tie_word_embeddings": False,
    },
    sources=("Qwen3-8B with 2 layers", "Qwen/Qwen3-8B config.json; 2048 tokens"),
    primitives=("rms_norm", "rope", "swiglu"),
    counters=(rotation_of_q_and_k("transformers.models.qwen3.modeling_qwen3"),),
)

_GLM4 = _causal_model(
    name="glm4",
    model="transformers:Glm4ForCausalLM",
    configuration="transformers:Glm4Config",
    sizes={
        "vocab_size": (128, 151552),
        "hidden_size": (64, 4096),
        "intermediate_size": (128, 13696),
        "num_hidden_layers": (2, 40),
        "num_attention_heads": (4, 32),
        "head_dim": (16, 128),
        "max_position_embeddings": (64, 131072),
        "pad_token_id": (0, 151329),
        "eos_token_id": ([1], [151329, 151336, 151338]),
    },
    same={
        "num_key_value_heads": 2,
        "rms_norm_eps": 1.5625e-07,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
        },
        "attention_bias": True,
        "tie_word_embeddings": False,
    },
    sources=(
        "GLM-4-9B with 2 layers; half of a head rotates, as in the full one",
        "GLM-4-9B: the defaults of transformers 5.24 Glm4Config; 2048 tokens",
    ),
    primitives=("rms_norm", "rope", "swiglu"),
    counters=(rotation_of_q_and_k("transformers.models.glm4.modeling_glm4"),),
)

_GEMMA3 = _causal_model(
    name="gemma3",
    model="transformers:Gemma3ForCausalLM",
    configuration="transformers:Gemma3TextConfig",
    sizes={
        "vocab_size": (128, 262208),
        "hidden_size": (64, 2560),
        "intermediate_size": (128, 10240),
        "num_hidden_layers": (2, 34),
        "num_attention_heads": (4, 8),
        "num_key_value_heads": (2, 4),
        "head_dim": (16, 256),
        "query_pre_attn_scalar": (16, 256),
        "sliding_window": (8, 1024),
        "layer_types": (
            _ALTERNATING,
            (["sliding_attention"] * 5 + ["full_attention"]) * 5 + ["sliding_attention"] * 4,
        ),
        "max_position_embeddings": (64, 131072),
    },
    same={
        "rms_norm_eps": 1e-06,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
        },
        "tie_word_embeddings": True,
    },
    sources=(
        "Gemma-3-4B's text model with one sliding and one full attention layer",
        "google/gemma-3-4b-it config.json, text_config; 2048 tokens",
    ),
    primitives=("rms_norm", "rope", "gelu"),
    counters=(rotation_of_q_and_k("transformers.models.gemma3.modeling_gemma3"),),
)

_GPT_J = _causal_model(
    name="gpt-j",
    model="transformers:GPTJForCausalLM",
    configuration="transformers:GPTJConfig",
    sizes={
        "vocab_size": (128, 50400),
        "n_positions": (64, 2048),
        "n_embd": (64, 4096),
        "n_layer": (2, 28),
        "n_head": (2, 16),
        "rotary_dim": (8, 64),
        "bos_token_id": (0, 50256),
        "eos_token_id": (0, 50256),
    },
    same={
        "n_inner": None,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-05,
        "tie_word_embeddings": False,
    },
    sources=(
        "GPT-J-6B with 2 layers; a quarter of a head rotates, as in the full one",
        "EleutherAI/gpt-j-6b config.json; 2048 tokens",
    ),
    primitives=("rope", "gelu"),
    counters=(rotation("transformers.models.gptj.modeling_gptj:apply_rotary_pos_emb"),),
)

_QWEN3_MOE = _causal_model(
    name="qwen3-moe",
    model="transformers:Qwen3MoeForCausalLM",
    configuration="transformers:Qwen3MoeConfig",
    sizes={
        "vocab_size": (128, 151936),
        "hidden_size": (64, 2048),
        "intermediate_size": (128, 6144),
        "moe_intermediate_size": (32, 768),
        "num_hidden_layers": (2, 48),
        "num_attention_heads": (4, 32),
        "num_key_value_heads": (2, 4),
        "head_dim": (16, 128),
        "num_experts": (8, 128),
        "num_experts_per_tok": (2, 8),
        "max_position_embeddings": (64, 40960),
    },
    same={
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "rms_norm_eps": 1e-06,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        "tie_word_embeddings": False,
    },
    sources=(
        "Qwen3-30B-A3B with 2 layers of 8 experts; every layer has experts, as in the full one",
        "Qwen/Qwen3-30B-A3B config.json; 2048 tokens",
    ),
    primitives=("rms_norm", "rope", "swiglu"),
    counters=(
        rotation_of_q_and_k("transformers.models.qwen3_moe.modeling_qwen3_moe"),
        experts_gate("transformers.models.qwen3_moe.modeling_qwen3_moe:Qwen3MoeExperts"),
    ),
)

_DEEPSEEK_V3 = _causal_model(
    name="deepseek-v3",
    model="transformers:DeepseekV3ForCausalLM",
    configuration="transformers:DeepseekV3Config",
    sizes={
        "vocab_size": (128, 129280),
        "hidden_size": (64, 7168),
        "intermediate_size": (128, 18432),
        "moe_intermediate_size": (32, 2048),
        "num_hidden_layers": (2, 61),
        "num_attention_heads": (4, 128),
        "num_key_value_heads": (4, 128),
        "n_routed_experts": (8, 256),
        "kv_lora_rank": (32, 512),
        "q_lora_rank": (48, 1536),
        "qk_rope_head_dim": (16, 64),
        "v_head_dim": (16, 128),
        "qk_nope_head_dim": (16, 128),
        "n_group": (4, 8),
        "topk_group": (2, 4),
        "num_experts_per_tok": (2, 8),
        "first_k_dense_replace": (1, 3),
        "max_position_embeddings": (64, 163840),
        "rope_parameters": (
            _yarn(10000.0, 4.0, 16, mscale=1.0, mscale_all_dim=1.0),
            _yarn(10000.0, 40.0, 4096, mscale=1.0, mscale_all_dim=1.0),
        ),
    },
    same={
        "n_shared_experts": 1,
        "routed_scaling_factor": 2.5,
        "norm_topk_prob": True,
        "rms_norm_eps": 1e-06,
        "rope_interleave": True,
        "tie_word_embeddings": False,
    },
    sources=(
        "DeepSeek-V3 with one dense layer and one of 8 experts",
        "deepseek-ai/DeepSeek-V3 config.json, without its layer that predicts further tokens; 2048 tokens",
    ),
    primitives=("rms_norm", "rope", "swiglu"),
    counters=(
        rotation_of_q_and_k(
            "transformers.models.deepseek_v3.modeling_deepseek_v3",
            "apply_rotary_pos_emb",
            "apply_rotary_pos_emb_interleave",
        ),
        experts_gate("transformers.models.deepseek_v3.modeling_deepseek_v3:DeepseekV3Experts"),
    ),
)

_GPT_OSS = _causal_model(
    name="gpt-oss",
    model="transformers:GptOssForCausalLM",
    configuration="transformers:GptOssConfig",
    sizes={
        "vocab_size": (128, 201088),
        "hidden_size": (64, 2880),
        "intermediate_size": (64, 2880),
        "num_hidden_layers": (2, 24),
        "num_attention_heads": (4, 64),
        "num_key_value_heads": (2, 8),
        "head_dim": (16, 64),
        "num_local_experts": (8, 32),
        "num_experts_per_tok": (2, 4),
        "sliding_window": (8, 128),
        "layer_types": (_ALTERNATING, _ALTERNATING * 12),
        "max_position_embeddings": (64, 131072),
        "rope_parameters": (
            _yarn(150000.0, 4.0, 16, truncate=False),
            _yarn(150000.0, 32.0, 4096, truncate=False),
        ),
    },
    same={"rms_norm_eps": 1e-05, "attention_bias": True, "tie_word_embeddings": False},
    sources=(
        "gpt-oss-20b with one sliding and one full attention layer, 8 experts in each",
        "openai/gpt-oss-20b config.json; 2048 tokens",
    ),
    # Its experts clamp gate and up, and take them from even and odd columns: not sites of swiglu.
    primitives=("rms_norm", "rope"),
    counters=(rotation_of_q_and_k("transformers.models.gpt_oss.modeling_gpt_oss"),),
)

LANGUAGE_MODELS = (_LLAMA, _QWEN3, _GLM4, _GEMMA3, _GPT_J, _QWEN3_MOE, _DEEPSEEK_V3, _GPT_OSS)
