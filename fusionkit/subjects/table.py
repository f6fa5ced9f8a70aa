"""The models under investigation: one literal row each, with a tiny and the published full size.

A tiny configuration has the architecture and the op constraints of the full one (even head sizes, rotary
axes that add up to the head size, grouped key/value heads); only widths, depths and token counts differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fusionkit.subjects import inputs
from fusionkit.subjects.inputs import InputDraw

SIZES = ("tiny", "full")

InputBuilder = Callable[[Mapping[str, Any], Mapping[str, int], InputDraw], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class SizeSpec:
    """One size of a subject.

    `config`: what the model class (or its configuration class) is built from. `extent`: how many tokens,
    frames, rows and columns the inputs have. `source`: where the numbers come from.
    """

    config: Mapping[str, Any]
    extent: Mapping[str, int]
    source: str


@dataclass(frozen=True, slots=True)
class SubjectSpec:
    """One row of the table.

    `model` and `configuration` are `package:Class`; a model without a configuration class takes the values
    directly. `inputs` builds the keyword arguments of forward. `primitives` are the ones whose sites
    fusionkit.subjects.counters counts completely in this model; one that is not named has no independent
    count.
    """

    name: str
    model: str
    configuration: str | None
    tiny: SizeSpec
    full: SizeSpec
    inputs: InputBuilder
    primitives: tuple[str, ...]

    def at(self, size: str) -> SizeSpec:
        """The size named "tiny" or "full"."""
        return self.full if size == "full" else self.tiny


_FLUX = SubjectSpec(
    name="flux",
    model="diffusers:FluxTransformer2DModel",
    configuration=None,
    tiny=SizeSpec(
        config={
            "patch_size": 1,
            "in_channels": 16,
            "num_layers": 2,
            "num_single_layers": 2,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 32,
            "pooled_projection_dim": 32,
            "guidance_embeds": True,
            "axes_dims_rope": (4, 6, 6),
        },
        extent={"rows": 4, "columns": 4, "text": 8},
        source="FLUX.1-dev with 2 double and 2 single blocks",
    ),
    full=SizeSpec(
        config={
            "patch_size": 1,
            "in_channels": 64,
            "num_layers": 19,
            "num_single_layers": 38,
            "attention_head_dim": 128,
            "num_attention_heads": 24,
            "joint_attention_dim": 4096,
            "pooled_projection_dim": 768,
            "guidance_embeds": True,
            "axes_dims_rope": (16, 56, 56),
        },
        extent={"rows": 64, "columns": 64, "text": 512},
        source="black-forest-labs/FLUX.1-dev transformer/config.json; 1024 x 1024 pixels, 512 text tokens",
    ),
    inputs=inputs.flux,
    primitives=("rms_norm", "rope", "gelu", "ada_layer_norm"),
)

_WAN = SubjectSpec(
    name="wan",
    model="diffusers:WanTransformer3DModel",
    configuration=None,
    tiny=SizeSpec(
        config={
            "patch_size": (1, 2, 2),
            "num_attention_heads": 2,
            "attention_head_dim": 16,
            "in_channels": 4,
            "out_channels": 4,
            "text_dim": 32,
            "freq_dim": 16,
            "ffn_dim": 64,
            "num_layers": 2,
            "cross_attn_norm": True,
            "qk_norm": "rms_norm_across_heads",
            "eps": 1e-06,
            "rope_max_seq_len": 32,
        },
        extent={"frames": 2, "rows": 8, "columns": 8, "text": 8},
        source="Wan2.1-T2V-14B with 2 blocks",
    ),
    full=SizeSpec(
        config={
            "patch_size": (1, 2, 2),
            "num_attention_heads": 40,
            "attention_head_dim": 128,
            "in_channels": 16,
            "out_channels": 16,
            "text_dim": 4096,
            "freq_dim": 256,
            "ffn_dim": 13824,
            "num_layers": 40,
            "cross_attn_norm": True,
            "qk_norm": "rms_norm_across_heads",
            "eps": 1e-06,
            "rope_max_seq_len": 1024,
        },
        extent={"frames": 21, "rows": 60, "columns": 104, "text": 512},
        source="Wan-AI/Wan2.1-T2V-14B-Diffusers transformer/config.json, also Wan2.2; 81 frames, 480 x 832",
    ),
    inputs=inputs.wan,
    # Its rotary function is local to WanAttnProcessor.__call__, and its modulated norms are float32
    # islands: no wrapper and no class of torch.nn singles them out, so neither has an independent count
    # here.
    primitives=("rms_norm", "gelu"),
)

_LLAMA = SubjectSpec(
    name="llama",
    model="transformers:LlamaForCausalLM",
    configuration="transformers:LlamaConfig",
    tiny=SizeSpec(
        config={
            "vocab_size": 128,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 64,
            "rms_norm_eps": 1e-05,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
            "tie_word_embeddings": False,
        },
        extent={"text": 16},
        source="Llama-3-8B with 2 layers",
    ),
    full=SizeSpec(
        config={
            "vocab_size": 128256,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-05,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
            "tie_word_embeddings": False,
        },
        extent={"text": 2048},
        source="meta-llama/Meta-Llama-3-8B config.json; 2048 tokens",
    ),
    inputs=inputs.llama,
    primitives=("rms_norm", "rope", "swiglu"),
)

SUBJECTS: Mapping[str, SubjectSpec] = {spec.name: spec for spec in (_FLUX, _WAN, _LLAMA)}
