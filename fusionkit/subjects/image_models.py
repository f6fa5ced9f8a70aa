"""Rows of the table: transformers of diffusion models that make images."""

from __future__ import annotations

from fusionkit.counters import DIFFUSERS_ROTATION, ModuleCounter, rotation
from fusionkit.subjects import image_inputs
from fusionkit.subjects.spec import SizeSpec, SubjectSpec

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
    inputs=image_inputs.flux,
    primitives=("rms_norm", "rope", "gelu", "ada_layer_norm"),
    counters=(DIFFUSERS_ROTATION,),
)

_FLUX2 = SubjectSpec(
    name="flux2",
    model="diffusers:Flux2Transformer2DModel",
    configuration=None,
    tiny=SizeSpec(
        config={
            "patch_size": 1,
            "in_channels": 16,
            "num_layers": 2,
            "num_single_layers": 2,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 48,
            "timestep_guidance_channels": 32,
            "mlp_ratio": 3.0,
            "axes_dims_rope": (4, 4, 4, 4),
            "rope_theta": 2000,
            "eps": 1e-06,
            "guidance_embeds": True,
        },
        extent={"rows": 4, "columns": 4, "text": 8},
        source="FLUX.2-dev with 2 double and 2 single blocks",
    ),
    full=SizeSpec(
        config={
            "patch_size": 1,
            "in_channels": 128,
            "num_layers": 8,
            "num_single_layers": 48,
            "attention_head_dim": 128,
            "num_attention_heads": 48,
            "joint_attention_dim": 15360,
            "timestep_guidance_channels": 256,
            "mlp_ratio": 3.0,
            "axes_dims_rope": (32, 32, 32, 32),
            "rope_theta": 2000,
            "eps": 1e-06,
            "guidance_embeds": True,
        },
        extent={"rows": 64, "columns": 64, "text": 512},
        source="FLUX.2-dev: the defaults of diffusers 0.42 Flux2Transformer2DModel; 1024 x 1024 pixels",
    ),
    inputs=image_inputs.flux2,
    primitives=("rms_norm", "rope", "swiglu", "ada_layer_norm"),
    counters=(DIFFUSERS_ROTATION,),
)

_QWEN_IMAGE = SubjectSpec(
    name="qwen-image",
    model="diffusers:QwenImageTransformer2DModel",
    configuration=None,
    tiny=SizeSpec(
        config={
            "patch_size": 2,
            "in_channels": 16,
            "out_channels": 4,
            "num_layers": 2,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 32,
            "guidance_embeds": False,
            "axes_dims_rope": (4, 6, 6),
        },
        extent={"rows": 4, "columns": 4, "text": 8},
        source="Qwen-Image with 2 blocks",
    ),
    full=SizeSpec(
        config={
            "patch_size": 2,
            "in_channels": 64,
            "out_channels": 16,
            "num_layers": 60,
            "attention_head_dim": 128,
            "num_attention_heads": 24,
            "joint_attention_dim": 3584,
            "guidance_embeds": False,
            "axes_dims_rope": (16, 56, 56),
        },
        extent={"rows": 83, "columns": 83, "text": 512},
        source="Qwen/Qwen-Image transformer/config.json; 1328 x 1328 pixels, 512 text tokens",
    ),
    inputs=image_inputs.qwen_image,
    # The last block's text output is unused: the eager run counts a gelu and a modulated
    # norm in it that no graph has. So neither has a count of the sites to expect.
    primitives=("rms_norm", "rope"),
    counters=(rotation("diffusers.models.transformers.transformer_qwenimage:apply_rotary_emb_qwen"),),
)

_SD3 = SubjectSpec(
    name="sd3",
    model="diffusers:SD3Transformer2DModel",
    configuration=None,
    tiny=SizeSpec(
        config={
            "sample_size": 8,
            "patch_size": 2,
            "in_channels": 4,
            "num_layers": 2,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 32,
            "caption_projection_dim": 32,
            "pooled_projection_dim": 32,
            "out_channels": 4,
            "pos_embed_max_size": 8,
            "dual_attention_layers": (0,),
            "qk_norm": "rms_norm",
        },
        extent={"rows": 8, "columns": 8, "text": 8},
        source="Stable Diffusion 3.5 medium with 2 blocks, the first of which attends twice",
    ),
    full=SizeSpec(
        config={
            "sample_size": 128,
            "patch_size": 2,
            "in_channels": 16,
            "num_layers": 24,
            "attention_head_dim": 64,
            "num_attention_heads": 24,
            "joint_attention_dim": 4096,
            "caption_projection_dim": 1536,
            "pooled_projection_dim": 2048,
            "out_channels": 16,
            "pos_embed_max_size": 384,
            "dual_attention_layers": tuple(range(13)),
            "qk_norm": "rms_norm",
        },
        extent={"rows": 128, "columns": 128, "text": 333},
        source="stabilityai/stable-diffusion-3.5-medium transformer/config.json; 1024 x 1024 pixels",
    ),
    inputs=image_inputs.sd3,
    # SD35AdaLayerNormZeroX scales and shifts one norm twice, so that counting norms does not count sites of
    # ada_layer_norm. Positions are learned: there is no rotary embedding.
    primitives=("rms_norm", "gelu"),
)

_Z_IMAGE = SubjectSpec(
    name="z-image",
    model="diffusers:ZImageTransformer2DModel",
    configuration=None,
    tiny=SizeSpec(
        config={
            "all_patch_size": (2,),
            "all_f_patch_size": (1,),
            "in_channels": 4,
            "dim": 48,
            "n_layers": 2,
            "n_refiner_layers": 1,
            "n_heads": 3,
            "n_kv_heads": 3,
            "norm_eps": 1e-05,
            "qk_norm": True,
            "cap_feat_dim": 32,
            "siglip_feat_dim": None,
            "rope_theta": 256.0,
            "t_scale": 1000.0,
            "axes_dims": (4, 6, 6),
            "axes_lens": (64, 32, 32),
        },
        extent={"rows": 16, "columns": 16, "text": 24},
        source="Z-Image with 2 layers and 1 layer in each refiner",
    ),
    full=SizeSpec(
        config={
            "all_patch_size": (2,),
            "all_f_patch_size": (1,),
            "in_channels": 16,
            "dim": 3840,
            "n_layers": 30,
            "n_refiner_layers": 2,
            "n_heads": 30,
            "n_kv_heads": 30,
            "norm_eps": 1e-05,
            "qk_norm": True,
            "cap_feat_dim": 2560,
            "siglip_feat_dim": None,
            "rope_theta": 256.0,
            "t_scale": 1000.0,
            "axes_dims": (32, 48, 48),
            "axes_lens": (1024, 512, 512),
        },
        extent={"rows": 128, "columns": 128, "text": 120},
        source="Z-Image: the defaults of diffusers 0.42 ZImageTransformer2DModel; 1024 x 1024 pixels",
    ),
    inputs=image_inputs.z_image,
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

IMAGE_MODELS = (_FLUX, _FLUX2, _QWEN_IMAGE, _SD3, _Z_IMAGE)
