"""What counts as a site of a primitive in an eager run: one literal table, independent of any graph.

A module row counts forward calls of matching modules; a function row counts calls of a library's function.
A call inside an open site of the same primitive is part of that site and not counted again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass(frozen=True, slots=True)
class ModuleCounter:
    """Counts the forward calls of the modules that `matches` accepts.

    `in_caller`: the math that makes it this primitive is written where the module is called, not in its
    forward. `anywhere`: also right for a model outside the table; False where the row relies on knowing the
    model.
    """

    primitive: str
    rule: str
    matches: Callable[[nn.Module], bool]
    in_caller: bool = False
    anywhere: bool = True


@dataclass(frozen=True, slots=True)
class FunctionCounter:
    """Counts the calls of any of `functions` that `counts` accepts, `sites` for each.

    A function is `module:name` or, for a method, `module:Class.name`. It is looked up among the modules that
    are loaded; one that no model has imported is not called either.
    """

    primitive: str
    rule: str
    functions: tuple[str, ...]
    sites: int = 1
    counts: Callable[[Mapping[str, Any]], bool] = lambda _: True
    anywhere: bool = True


def _is_rms_norm(module: nn.Module) -> bool:
    return type(module).__name__.endswith("RMSNorm")


def _is_plain_layer_norm(module: nn.Module) -> bool:
    return type(module) is nn.LayerNorm and not module.elementwise_affine


def _is_gelu_tanh(module: nn.Module) -> bool:
    return type(module).__name__ in ("GELUTanh", "NewGELUActivation")


def _is_silu(activation: Any) -> bool:
    return type(activation).__name__ in ("SiLU", "SiLUActivation")


def _gates_two_projections(module: nn.Module) -> bool:
    projections = all(hasattr(module, name) for name in ("gate_proj", "up_proj", "down_proj"))
    return projections and _is_silu(getattr(module, "act_fn", None))


def _gates_one_projection(module: nn.Module) -> bool:
    projections = all(isinstance(getattr(module, n, None), nn.Linear) for n in ("gate_up_proj", "down_proj"))
    return projections and _is_silu(getattr(module, "activation_fn", None))


def _is_swiglu_activation(module: nn.Module) -> bool:
    return type(module).__name__ in ("SwiGLU", "Flux2SwiGLU")


def _gates_by_silu(module: nn.Module) -> bool:
    return hasattr(module, "_forward_silu_gating")


_DIFFUSERS = "diffusers.models.transformers.transformer"
_TRANSFORMERS = "transformers.models"

COUNTERS: tuple[ModuleCounter | FunctionCounter, ...] = (
    # torch.nn.RMSNorm, diffusers.models.normalization.RMSNorm, transformers' LlamaRMSNorm and its copies,
    # among them Gemma3RMSNorm (1 + weight) and GptOssRMSNorm: each forward is one norm.
    ModuleCounter("rms_norm", "forward of a module whose class name ends in RMSNorm", _is_rms_norm),
    FunctionCounter(
        "rms_norm", "call of F.rms_norm outside such a module", ("torch.nn.functional:rms_norm",)
    ),
    # Each turns the one tensor it is given. diffusers' apply_rotary_emb: FLUX, FLUX.2 and HunyuanVideo call
    # it for q and for k (HunyuanVideo for the latents' part of them). apply_rotary_emb_qwen: q and k of the
    # image and of the text. _apply_rotary_emb of MiniMax-H3: q and k of its blocks, the refiner has none.
    # apply_rotary_pos_emb of GPT-J: q and k.
    FunctionCounter(
        "rope",
        "call of apply_rotary_emb",
        (
            "diffusers.models.embeddings:apply_rotary_emb",
            f"{_DIFFUSERS}_qwenimage:apply_rotary_emb_qwen",
            f"{_DIFFUSERS}_minimax_h3:_apply_rotary_emb",
            f"{_TRANSFORMERS}.gptj.modeling_gptj:apply_rotary_pos_emb",
        ),
    ),
    # Each turns q and k in one call. DeepSeek-V3 has one function for either layout of its weights.
    FunctionCounter(
        "rope",
        "q and k of a call of apply_rotary_pos_emb",
        (
            f"{_TRANSFORMERS}.llama.modeling_llama:apply_rotary_pos_emb",
            f"{_TRANSFORMERS}.qwen3.modeling_qwen3:apply_rotary_pos_emb",
            f"{_TRANSFORMERS}.qwen3_moe.modeling_qwen3_moe:apply_rotary_pos_emb",
            f"{_TRANSFORMERS}.glm4.modeling_glm4:apply_rotary_pos_emb",
            f"{_TRANSFORMERS}.gemma3.modeling_gemma3:apply_rotary_pos_emb",
            f"{_TRANSFORMERS}.gpt_oss.modeling_gpt_oss:apply_rotary_pos_emb",
            f"{_TRANSFORMERS}.deepseek_v3.modeling_deepseek_v3:apply_rotary_pos_emb",
            f"{_TRANSFORMERS}.deepseek_v3.modeling_deepseek_v3:apply_rotary_pos_emb_interleave",
        ),
        sites=2,
    ),
    # torch.nn.GELU, diffusers' GELU and bare calls all end in F.gelu: counted there, and only there.
    FunctionCounter(
        "gelu",
        'call of F.gelu with approximate="tanh"',
        ("torch.nn.functional:gelu",),
        counts=lambda keywords: keywords.get("approximate") == "tanh",
    ),
    # transformers.activations: GELUTanh (Gemma 3) keeps F.gelu in a functools.partial, or writes the formula
    # out; NewGELUActivation (GPT-J) writes it out.
    ModuleCounter("gelu", "forward of transformers' GELUTanh or NewGELUActivation", _is_gelu_tanh),
    # FLUX, FLUX.2, HunyuanVideo: norm1, norm1_context, norm2, norm2_context, norm, norm_out, each scaled and
    # shifted once by whoever calls it; the norms of HunyuanVideo's refiner have an affine and are not.
    ModuleCounter(
        "ada_layer_norm",
        "forward of a torch.nn.LayerNorm without affine, whose caller scales and shifts",
        _is_plain_layer_norm,
        in_caller=True,
        anywhere=False,
    ),
    # transformers.models.llama.modeling_llama.LlamaMLP and its copies (Qwen3; DeepSeek-V3's dense layers and
    # shared experts): down_proj(silu(gate_proj(x)) * up_proj(x)).
    ModuleCounter(
        "swiglu", "forward of an MLP with gate_proj, up_proj, down_proj and SiLU", _gates_two_projections
    ),
    # Glm4MLP: gate, up = gate_up_proj(x).chunk(2); down_proj(up * silu(gate)).
    ModuleCounter("swiglu", "forward of an MLP with gate_up_proj, down_proj and SiLU", _gates_one_projection),
    # diffusers.models.activations.SwiGLU (MiniMax-H3; the gate is the second half), Flux2SwiGLU (the first).
    ModuleCounter("swiglu", "forward of diffusers' SwiGLU or Flux2SwiGLU", _is_swiglu_activation),
    # transformer_z_image.FeedForward: w2(silu(w1(x)) * w3(x)).
    ModuleCounter("swiglu", "forward of Z-Image's FeedForward", _gates_by_silu),
    # transformers.integrations.moe puts this method into the experts' classes; its grouped and its batched
    # forward, of which a model takes one by default, call it once for the tokens of all experts. SiLU is
    # what these rows' configurations say.
    FunctionCounter(
        "swiglu",
        "call of the experts' _apply_gate",
        (
            f"{_TRANSFORMERS}.qwen3_moe.modeling_qwen3_moe:Qwen3MoeExperts._apply_gate",
            f"{_TRANSFORMERS}.deepseek_v3.modeling_deepseek_v3:DeepseekV3Experts._apply_gate",
        ),
        anywhere=False,
    ),
)


def primitives() -> tuple[str, ...]:
    """The primitives that have a counter, in the order of the table."""
    return tuple(dict.fromkeys(row.primitive for row in COUNTERS))
