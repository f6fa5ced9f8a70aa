"""Rows of the table: transformers of diffusion models that make images or videos."""

from __future__ import annotations

from fusionkit.counters import DIFFUSERS_ROTATION, ModuleCounter, rotation
from fusionkit.subjects import inputs
from fusionkit.subjects.spec import SubjectSpec

_FLUX = SubjectSpec(
    name="flux",
    model="diffusers:FluxTransformer2DModel",
    sizes={
        "in_channels": (16, 64),
        "num_layers": (2, 19),
        "num_single_layers": (2, 38),
        "attention_head_dim": (16, 128),
        "num_attention_heads": (2, 24),
        "joint_attention_dim": (32, 4096),
        "pooled_projection_dim": (32, 768),
        "axes_dims_rope": ((4, 6, 6), (16, 56, 56)),
    },
    same={"patch_size": 1, "guidance_embeds": True},
    extent={"rows": (4, 64), "columns": (4, 64), "text": (8, 512)},
    sources=(
        "FLUX.1-dev with 2 double and 2 single blocks",
        "black-forest-labs/FLUX.1-dev transformer/config.json; 1024 x 1024 pixels, 512 text tokens",
    ),
    inputs=inputs.flux,
    primitives=("rms_norm", "rope", "gelu", "ada_layer_norm"),
    counters=(DIFFUSERS_ROTATION,),
)

_FLUX2 = SubjectSpec(
    name="flux2",
    model="diffusers:Flux2Transformer2DModel",
    sizes={
        "in_channels": (16, 128),
        "num_layers": (2, 8),
        "num_single_layers": (2, 48),
        "attention_head_dim": (16, 128),
        "num_attention_heads": (2, 48),
        "joint_attention_dim": (48, 15360),
        "timestep_guidance_channels": (32, 256),
        "axes_dims_rope": ((4, 4, 4, 4), (32, 32, 32, 32)),
    },
    same={"patch_size": 1, "mlp_ratio": 3.0, "rope_theta": 2000, "eps": 1e-06, "guidance_embeds": True},
    extent={"rows": (4, 64), "columns": (4, 64), "text": (8, 512)},
    sources=(
        "FLUX.2-dev with 2 double and 2 single blocks",
        "FLUX.2-dev: the defaults of diffusers 0.42 Flux2Transformer2DModel; 1024 x 1024 pixels",
    ),
    inputs=inputs.flux2,
    primitives=("rms_norm", "rope", "swiglu", "ada_layer_norm"),
    counters=(DIFFUSERS_ROTATION,),
)

_QWEN_IMAGE = SubjectSpec(
    name="qwen-image",
    model="diffusers:QwenImageTransformer2DModel",
    sizes={
        "in_channels": (16, 64),
        "out_channels": (4, 16),
        "num_layers": (2, 60),
        "attention_head_dim": (16, 128),
        "num_attention_heads": (2, 24),
        "joint_attention_dim": (32, 3584),
        "axes_dims_rope": ((4, 6, 6), (16, 56, 56)),
    },
    same={"patch_size": 2, "guidance_embeds": False},
    extent={"rows": (4, 83), "columns": (4, 83), "text": (8, 512)},
    sources=(
        "Qwen-Image with 2 blocks",
        "Qwen/Qwen-Image transformer/config.json; 1328 x 1328 pixels, 512 text tokens",
    ),
    inputs=inputs.qwen_image,
    # The last block's text output is unused: the eager run counts a gelu and a modulated
    # norm in it that no graph has. So neither has a count of the sites to expect.
    primitives=("rms_norm", "rope"),
    counters=(rotation("diffusers.models.transformers.transformer_qwenimage:apply_rotary_emb_qwen"),),
)

_SD3 = SubjectSpec(
    name="sd3",
    model="diffusers:SD3Transformer2DModel",
    sizes={
        "sample_size": (8, 128),
        "in_channels": (4, 16),
        "num_layers": (2, 24),
        "attention_head_dim": (16, 64),
        "num_attention_heads": (2, 24),
        "joint_attention_dim": (32, 4096),
        "caption_projection_dim": (32, 1536),
        "pooled_projection_dim": (32, 2048),
        "out_channels": (4, 16),
        "pos_embed_max_size": (8, 384),
        "dual_attention_layers": ((0,), tuple(range(13))),
    },
    same={"patch_size": 2, "qk_norm": "rms_norm"},
    extent={"rows": (8, 128), "columns": (8, 128), "text": (8, 333)},
    sources=(
        "Stable Diffusion 3.5 medium with 2 blocks, the first of which attends twice",
        "stabilityai/stable-diffusion-3.5-medium transformer/config.json; 1024 x 1024 pixels",
    ),
    inputs=inputs.sd3,
    # SD35AdaLayerNormZeroX scales and shifts one norm twice, so that counting norms does not count sites of
    # ada_layer_norm. Positions are learned: there is no rotary embedding.
    primitives=("rms_norm", "gelu"),
)

_Z_IMAGE = SubjectSpec(
    name="z-image",
    model="diffusers:ZImageTransformer2DModel",
    sizes={
        "in_channels": (4, 16),
        "dim": (48, 3840),
        "n_layers": (2, 30),
        "n_refiner_layers": (1, 2),
        "n_heads": (3, 30),
        "n_kv_heads": (3, 30),
        "cap_feat_dim": (32, 2560),
        "axes_dims": ((4, 6, 6), (32, 48, 48)),
        "axes_lens": ((64, 32, 32), (1024, 512, 512)),
    },
    same={
        "all_patch_size": (2,),
        "all_f_patch_size": (1,),
        "norm_eps": 1e-05,
        "qk_norm": True,
        "siglip_feat_dim": None,
        "rope_theta": 256.0,
        "t_scale": 1000.0,
    },
    extent={"rows": (16, 128), "columns": (16, 128), "text": (24, 120)},
    sources=(
        "Z-Image with 2 layers and 1 layer in each refiner",
        "Z-Image: the defaults of diffusers 0.42 ZImageTransformer2DModel; 1024 x 1024 pixels",
    ),
    inputs=inputs.z_image,
    # Its rotary function is local to ZSingleStreamAttnProcessor.__call__, and its norms are scaled, not
    # shifted: neither can be counted here.
    primitives=("rms_norm", "swiglu"),
    counters=(
        ModuleCounter(
            "swiglu",
            "forward of Z-Image's FeedForward: w2(silu(w1(x)) * w3(x))",
            lambda module: hasattr(module, "_forward_silu_gating"),
        ),
    ),
)

_WAN = SubjectSpec(
    name="wan",
    model="diffusers:WanTransformer3DModel",
    sizes={
        "num_attention_heads": (2, 40),
        "attention_head_dim": (16, 128),
        "in_channels": (4, 16),
        "out_channels": (4, 16),
        "text_dim": (32, 4096),
        "freq_dim": (16, 256),
        "ffn_dim": (64, 13824),
        "num_layers": (2, 40),
        "rope_max_seq_len": (32, 1024),
    },
    same={"patch_size": (1, 2, 2), "cross_attn_norm": True, "qk_norm": "rms_norm_across_heads", "eps": 1e-06},
    extent={"frames": (2, 21), "rows": (8, 60), "columns": (8, 104), "text": (8, 512)},
    sources=(
        "Wan2.1-T2V-14B with 2 blocks",
        "Wan-AI/Wan2.1-T2V-14B-Diffusers transformer/config.json, also Wan2.2; 81 frames, 480 x 832",
    ),
    inputs=inputs.wan,
    # Its rotary function is local to WanAttnProcessor.__call__, and its modulated norms are float32
    # islands: no counter identifies them, so neither has an independent count here.
    primitives=("rms_norm", "gelu"),
)

_HUNYUAN_VIDEO = SubjectSpec(
    name="hunyuan-video",
    model="diffusers:HunyuanVideoTransformer3DModel",
    sizes={
        "in_channels": (4, 16),
        "out_channels": (4, 16),
        "num_attention_heads": (2, 24),
        "attention_head_dim": (16, 128),
        "num_layers": (2, 20),
        "num_single_layers": (2, 40),
        "num_refiner_layers": (1, 2),
        "text_embed_dim": (32, 4096),
        "pooled_projection_dim": (32, 768),
        "rope_axes_dim": ((4, 6, 6), (16, 56, 56)),
    },
    same={
        "mlp_ratio": 4.0,
        "patch_size": 2,
        "patch_size_t": 1,
        "qk_norm": "rms_norm",
        "guidance_embeds": True,
        "rope_theta": 256.0,
        "image_condition_type": None,
    },
    extent={"frames": (2, 33), "rows": (8, 90), "columns": (8, 160), "text": (8, 256)},
    sources=(
        "HunyuanVideo with 2 double, 2 single and 1 refiner block",
        "hunyuanvideo-community/HunyuanVideo transformer/config.json; 129 frames, 720 x 1280",
    ),
    inputs=inputs.hunyuan_video,
    primitives=("rms_norm", "rope", "gelu", "ada_layer_norm"),
    counters=(DIFFUSERS_ROTATION,),
)

_MINIMAX_H3 = SubjectSpec(
    name="minimax-h3",
    model="diffusers:MiniMaxH3Transformer3DModel",
    sizes={
        "num_attention_heads": (2, 56),
        "attention_head_dim": (16, 128),
        "hidden_size": (48, 5376),
        "num_layers": (2, 50),
        "num_refiner_layers": (1, 2),
        "ffn_dim": (64, 14336),
        "in_channels": (4, 24),
        "audio_in_channels": (8, 32),
        "text_dim": (32, 5120),
        "freq_dim": (16, 256),
        "time_embed_hidden_dim": (48, 5376),
        "time_embed_dim": (24, 2688),
        "rope_freq_dim": (2, 16),
    },
    same={
        "patch_size": (1, 2, 2),
        "rope_theta": 10000.0,
        "norm_eps": 1e-05,
        "qk_norm_eps": 1e-05,
        "final_norm_eps": 1e-05,
    },
    extent={"frames": (2, 12), "rows": (4, 24), "columns": (4, 42), "audio": (6, 160), "text": (8, 256)},
    sources=(
        "MiniMax-H3 with 2 blocks and 1 refiner block; three quarters of a head rotate, as in the full one",
        "MiniMax-H3: the defaults of diffusers 0.42 MiniMaxH3Transformer3DModel; 768 x 1344 pixels",
    ),
    inputs=inputs.minimax_h3,
    primitives=("rms_norm", "rope", "swiglu"),
    counters=(rotation("diffusers.models.transformers.transformer_minimax_h3:_apply_rotary_emb"),),
)

DIFFUSION_MODELS = (_FLUX, _FLUX2, _QWEN_IMAGE, _SD3, _Z_IMAGE, _WAN, _HUNYUAN_VIDEO, _MINIMAX_H3)
