"""How large the modules of a proof are: small, consistent, and more than one of everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers from which modules, configurations and inputs are made: hidden = heads * head_dim."""

    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    experts: int = 4
    top_k: int = 2

    @property
    def hidden(self) -> int:
        """Width of the hidden states."""
        return self.heads * self.head_dim

    def __str__(self) -> str:
        return f"{self.heads}/{self.kv_heads} heads of {self.head_dim}"


SIZES: tuple[Sizes, ...] = (
    Sizes(4, 2, 16, 96),
    Sizes(4, 1, 32, 80),
    Sizes(4, 4, 16, 96),
    Sizes(2, 2, 64, 96),
)
"""Tried in this order; the later ones are for modules that have no grouped heads or need a wide head."""

WANTED = 2
"""So many sizes, at which the original runs, are enough."""

CONFIG_FIELDS: dict[str, str] = {
    "hidden_size": "hidden", "d_model": "hidden", "n_embd": "hidden", "dim": "hidden", "embed_dim": "hidden",
    "hidden_dim": "hidden", "model_dim": "hidden", "width": "hidden", "word_embed_proj_dim": "hidden",
    "decoder_hidden_size": "hidden", "n_embed": "hidden", "encoder_hidden_size": "hidden", "embedding_size": "hidden",
    "intermediate_size": "intermediate", "ffn_dim": "intermediate", "d_ff": "intermediate", "n_inner": "intermediate",
    "encoder_ffn_dim": "intermediate", "decoder_ffn_dim": "intermediate", "ffn_hidden_size": "intermediate",
    "mlp_dim": "intermediate", "moe_intermediate_size": "intermediate", "expert_ffn_hidden_size": "intermediate",
    "shared_expert_intermediate_size": "intermediate", "intermediate_dim": "intermediate",
    "moe_ffn_hidden_size": "intermediate", "intermediate_size_mlp": "intermediate",
    "num_attention_heads": "heads", "n_head": "heads", "n_heads": "heads", "num_heads": "heads",
    "encoder_attention_heads": "heads", "decoder_attention_heads": "heads", "attention_heads": "heads",
    "num_key_value_heads": "kv_heads", "num_kv_heads": "kv_heads", "n_head_kv": "kv_heads",
    "head_dim": "head_dim", "d_kv": "head_dim", "attention_head_dim": "head_dim", "kv_channels": "head_dim",
    "v_head_dim": "head_dim", "qk_nope_head_dim": "head_dim", "qk_rope_head_dim": "head_dim",
    "num_experts": "experts", "num_local_experts": "experts", "n_routed_experts": "experts",
    "moe_num_experts": "experts", "num_moe_experts": "experts",
    "num_experts_per_tok": "top_k", "moe_top_k": "top_k", "moe_k": "top_k", "num_experts_per_token": "top_k",
    "top_k_experts": "top_k",
}  # fmt: skip
"""Field of a configuration -> number of Sizes. Sources: the configuration files of transformers 5.24 and diffusers."""

_NEEDED = (
    "experts",
    "top_k",
)  # numbers that classes take from a configuration even where its default is None

EPS = 1e-2
"""No class's and no op's default, so that an epsilon which a replacement loses shows in the numbers."""

CONFIG_CONSTANTS: dict[str, Any] = {
    "q_lora_rank": 32, "kv_lora_rank": 32, "vocab_size": 64, "num_hidden_layers": 2, "num_layers": 2,
    "rms_norm_eps": EPS, "norm_eps": EPS, "layer_norm_eps": EPS, "layer_norm_epsilon": EPS, "norm_epsilon": EPS,
    "n_group": 1, "topk_group": 1, "attention_dropout": 0.0, "hidden_dropout": 0.0, "dropout": 0.0,
    "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0, "dropout_rate": 0.0, "attn_pdrop": 0.0,
    "resid_pdrop": 0.0, "pad_token_id": 0, "max_position_embeddings": 128, "moe_router_jitter_noise": 0.0,
}  # fmt: skip
"""Fields set to one value: small where that is free, no random stream, one group of experts."""


def make_small(config: Any, sizes: Sizes, depth: int = 2) -> None:
    """Set the usual size fields of a configuration, and of those it is composed of, in place."""
    layers = getattr(config, "num_hidden_layers", None)
    told = {name: getattr(sizes, field) for name, field in CONFIG_FIELDS.items()} | CONFIG_CONSTANTS
    for name, value in told.items():
        held = getattr(config, name, "")
        if _number(held) or (held is None and CONFIG_FIELDS.get(name) in _NEEDED):
            setattr(config, name, value)
    for name, value in list(vars(config).items()):
        if isinstance(value, list) and isinstance(layers, int) and len(value) == layers > 2:
            setattr(config, name, value[:2])
        elif depth and name.endswith("config") and hasattr(value, "__dict__"):
            make_small(value, sizes, depth - 1)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
