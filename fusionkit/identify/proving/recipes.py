"""Arguments by parameter name: a literal table for what builds a class, and one for what a call is given.

Names and shapes as transformers 5.24 and diffusers 0.42 use them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from fusionkit.identify.proving import rotary_tables
from fusionkit.identify.proving.setting import Setting
from fusionkit.identify.proving.sizes import EPS

Maker = Callable[[Setting], Any]

BUILD: dict[str, str | int | float | bool | None] = {
    "hidden_size": "hidden", "dim": "hidden", "d_model": "hidden", "embed_dim": "hidden", "query_dim": "hidden",
    "in_features": "hidden", "hidden_dim": "hidden", "channels": "hidden", "in_channels": "hidden", "in_dim": "hidden",
    "dim_in": "hidden", "width": "hidden", "normalized_shape": "hidden", "input_dim": "hidden", "size": "hidden",
    "out_features": "hidden", "dim_out": "intermediate", "out_dim": "hidden", "n_embd": "hidden",
    "num_features": "hidden", "embedding_dim": "hidden", "kv_dim": "hidden", "cross_attention_dim": None,
    "intermediate_size": "intermediate", "inner_dim": "intermediate", "ffn_dim": "intermediate",
    "hidden_features": "intermediate", "mlp_dim": "intermediate", "moe_intermediate_dim": "intermediate",
    "output_size": "hidden", "ffn_hidden_size": "intermediate", "moe_intermediate_size": "intermediate",
    "heads": "heads", "num_heads": "heads", "num_attention_heads": "heads", "n_heads": "heads", "n_head": "heads",
    "kv_heads": "heads", "num_kv_heads": "kv_heads", "num_key_value_heads": "kv_heads",
    "head_dim": "head_dim", "dim_head": "head_dim", "attention_head_dim": "head_dim", "key_dim": "head_dim",
    "num_experts": "experts", "top_k": "top_k",
    "layer_idx": 0, "layer_id": 0, "layer_index": 0, "eps": EPS, "norm_eps": EPS, "epsilon": EPS, "variance_epsilon": EPS,
    "dropout": 0.0, "attention_dropout": 0.0, "bias": True, "use_bias": True, "elementwise_affine": True,
    "group_size": "head_dim", "expansion": 2, "hidden_act": "silu", "use_grouped_mm": False, "scale": 0.3,
}  # fmt: skip
"""Parameter of __init__ -> number of Sizes by its name, or a constant. Only for parameters without a default."""

SILU = {"hidden_act": "silu", "activation": "silu", "act_fn": "silu"}
GELU = {"hidden_act": "gelu", "activation": "gelu", "act_fn": "gelu"}
"""Names of activations, where the op says which one is meant."""


def _top_k_index(setting: Setting) -> torch.Tensor:
    """[T, k] of int64; the last expert gets no token, and the first more than the others."""
    used = max(2, setting.sizes.experts - 1)
    rows = setting.batch * setting.length
    ranks = torch.rand((rows, used), generator=setting.generator)
    ranks[:, 0] += 0.4
    return ranks.topk(min(setting.sizes.top_k, used), -1).indices


def _top_k_weights(setting: Setting) -> torch.Tensor:
    return torch.softmax(setting.tensor("T k"), -1)


def _routing(setting: Setting) -> torch.Tensor:
    """[T, E]: a weight for every expert, zero for those that are not chosen."""
    weights = torch.zeros(setting.batch * setting.length, setting.sizes.experts)
    return weights.scatter(1, _top_k_index(setting), _top_k_weights(setting))


def _attention_module(setting: Setting) -> torch.nn.Module:
    """Stands for the attention module that an eager function reads its numbers from."""
    module = torch.nn.Module()
    sizes = setting.sizes
    facts = SimpleNamespace(
        num_key_value_groups=sizes.heads // sizes.kv_heads, scaling=_scaling(setting), scale=_scaling(setting),
        is_causal=True, layer_idx=0, attention_dropout=0.0, dropout=0.0, sliding_window=None, config=setting.config,
        head_dim=sizes.head_dim, num_heads=sizes.heads, num_key_value_heads=sizes.kv_heads, embed_dim=sizes.hidden,
        num_attention_heads=sizes.heads,
    )  # fmt: skip
    for name, value in vars(facts).items():
        setattr(module, name, value)
    return module.eval()


def _scaling(setting: Setting) -> float:
    """Not 1 / sqrt(head_dim), so that a default of any kind shows."""
    return 0.7 / math.sqrt(setting.sizes.head_dim)


def axes_maker(axes: str) -> Maker:
    """Normal values with the given axes."""
    return lambda setting: setting.tensor(axes)


def _q(setting: Setting) -> torch.Tensor:
    if setting.site.op == "npu_rotary_mul" and setting.manner.tables == "own":
        rotary_tables.tables(setting)
    return setting.tensor(setting.manner.operands)


def _k(setting: Setting) -> torch.Tensor:
    _q(setting)
    return setting.tensor(setting.manner.operands.replace("H", "K"))


def _v(setting: Setting) -> torch.Tensor:
    return setting.tensor(setting.manner.operands.replace("H", "K"))


def positions(setting: Setting) -> torch.Tensor:
    """[B, S] of int64."""
    return torch.arange(setting.length).expand(setting.batch, -1)


def _rotated(setting: Setting) -> torch.Tensor:
    """`x` is what is rotated in a rotation, hidden states elsewhere."""
    return _q(setting) if setting.site.op == "npu_rotary_mul" else setting.tensor("B S C")


_CALL: dict[str, Maker | str | int | float | bool] = {
    "hidden_states": "B S C", "hidden_state": "B S C", "inputs": "B S C", "input": "B S C", "hidden": "B S C",
    "features": "B S C", "input_tensor": "B S C", "inputs_embeds": "B S C", "image_features": "B S C", "u": "B S C",
    "gate": "B S C", "residual": "B S C", "encoder_hidden_states": "B L C", "context": "B L C",
    "x": _rotated, "q": _q, "k": _k, "xq": _q, "xk": _k, "v": _v, "tensor": _rotated, "t": _rotated,
    "cos": lambda s: rotary_tables.tables(s)[0], "sin": lambda s: rotary_tables.tables(s)[1],
    "freqs_cos": lambda s: rotary_tables.tables(s)[0], "freqs_sin": lambda s: rotary_tables.tables(s)[1],
    "position_embeddings": rotary_tables.tables, "freqs_cis": rotary_tables.frequencies,
    "freqs": rotary_tables.frequencies, "image_rotary_emb": rotary_tables.interleaved, "rotary_emb": rotary_tables.interleaved,
    "position_ids": positions, "query_states": "B H S D", "key_states": "B K S D", "value_states": "B K S D",
    "layer_input": "B S C", "states": "B S C", "latents": "B L C", "unsqueeze_dim": 1,
    "query": "B H S D", "key": "B K S D", "value": "B K S D", "module": _attention_module,
    "scaling": _scaling, "scale": _scaling, "attention_mask": lambda _: None, "mask": lambda _: None,
    "attn_mask": lambda _: None, "dropout": 0.0, "head_mask": lambda _: None, "output_attentions": False,
    "top_k_index": _top_k_index, "top_k_weights": _top_k_weights, "selected_experts": _top_k_index,
    "routing_weights": _top_k_weights, "router_indices": _top_k_index, "past_key_values": lambda _: None,
    "x1": "B S F", "x3": "B S F", "gate_up": "B S F", "eps": EPS, "variance_epsilon": EPS, "weight": "C",
    "config": lambda s: s.config, "cu_seqlens": lambda s: torch.tensor([0, s.length], dtype=torch.int32),
}  # fmt: skip

_BY_OP: dict[tuple[str, str], Maker | str] = {
    ("npu_rotary_mul", "hidden_states"): _q,
    ("npu_rotary_mul", "query"): _q,
    ("npu_rotary_mul", "key"): _k,
    ("npu_rotary_mul", "query_states"): _q,
    ("npu_rotary_mul", "key_states"): _k,
    ("npu_grouped_matmul", "routing_weights"): _routing,
    ("affinity_where", "mask"): lambda s: s.tensor("B S 1") > 0,
    ("affinity_index_put", "mask"): lambda s: s.tensor("B S") > 0,
    ("affinity_index_put", "attention_mask"): lambda s: s.tensor("B S") > 0,
}

_WITH_INDEX = ("top_k_index", "selected_experts", "router_indices")  # beside them, hidden states are tokens


def call_maker(name: str, setting: Setting, beside: tuple[str, ...]) -> Maker | None:
    """What makes the argument `name` of a call that also has the parameters `beside`; None where nothing is known."""
    if name == "hidden_states" and "attn" in beside:  # of a processor: not projected yet
        return axes_maker("B S C")
    if name in ("hidden_states", "x") and any(other in beside for other in _WITH_INDEX):
        return axes_maker("T C")
    if name == "routing_weights" and not any(other in beside for other in _WITH_INDEX):
        return _routing
    known = _BY_OP.get((setting.site.op, name), _CALL.get(name))
    if known is None or callable(known):
        return known
    return axes_maker(known) if isinstance(known, str) else lambda _: known
