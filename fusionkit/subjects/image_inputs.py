"""The keyword arguments of the image models' forwards, as their pipelines of diffusers 0.42 pass them.

Latents have `rows` x `columns` places of `extent`; a packed model gets one token for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusionkit.subjects.inputs import InputDraw


def flux(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """FLUX: packed latents, text, pooled text, timestep in 0..1, guidance, ids.

    Image ids are (0, row, column), text ids zero, as FluxPipeline sets them; guidance where it is embedded.
    """
    rows, columns, text = extent["rows"], extent["columns"], extent["text"]
    tokens = rows * columns
    ids = [[0, row, column] for row in range(rows) for column in range(columns)]
    guidance = draw.values([3.5]) if config["guidance_embeds"] else None
    return {
        "hidden_states": draw.normal("hidden_states", (1, tokens, config["in_channels"])),
        "encoder_hidden_states": draw.normal(
            "encoder_hidden_states", (1, text, config["joint_attention_dim"])
        ),
        "pooled_projections": draw.normal("pooled_projections", (1, config["pooled_projection_dim"])),
        "timestep": draw.values([0.5]),
        "guidance": guidance,
        "img_ids": draw.values(ids),
        "txt_ids": draw.values([[0, 0, 0]] * text),
        "return_dict": False,
    }


def flux2(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """FLUX.2: packed latents, text, timestep in 0..1, guidance, integer ids (tokens, 4).

    Image ids are (0, row, column, 0), text ids (0, 0, 0, position), as Flux2Pipeline sets them.
    """
    rows, columns, text = extent["rows"], extent["columns"], extent["text"]
    ids = [[0, row, column, 0] for row in range(rows) for column in range(columns)]
    return {
        "hidden_states": draw.normal("hidden_states", (1, rows * columns, config["in_channels"])),
        "encoder_hidden_states": draw.normal(
            "encoder_hidden_states", (1, text, config["joint_attention_dim"])
        ),
        "timestep": draw.values([0.5]),
        "guidance": draw.values([4.0]) if config["guidance_embeds"] else None,
        "img_ids": draw.values(ids, integer=True),
        "txt_ids": draw.values([[0, 0, 0, position] for position in range(text)], integer=True),
        "return_dict": False,
    }


def qwen_image(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """Qwen-Image: packed latents, text, timestep in 0..1, the latents' (frames, rows, columns).

    No mask: QwenImagePipeline drops a mask that hides nothing.
    """
    rows, columns, text = extent["rows"], extent["columns"], extent["text"]
    return {
        "hidden_states": draw.normal("hidden_states", (1, rows * columns, config["in_channels"])),
        "encoder_hidden_states": draw.normal(
            "encoder_hidden_states", (1, text, config["joint_attention_dim"])
        ),
        "encoder_hidden_states_mask": None,
        "timestep": draw.values([0.5]),
        "img_shapes": [[(1, rows, columns)]],
        "guidance": None,
        "return_dict": False,
    }


def sd3(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """Stable Diffusion 3: latents (1, channels, rows, columns), text, pooled text, timestep in 0..1000."""
    latents = (1, config["in_channels"], extent["rows"], extent["columns"])
    return {
        "hidden_states": draw.normal("hidden_states", latents),
        "encoder_hidden_states": draw.normal(
            "encoder_hidden_states", (1, extent["text"], config["joint_attention_dim"])
        ),
        "pooled_projections": draw.normal("pooled_projections", (1, config["pooled_projection_dim"])),
        "timestep": draw.values([500]),
        "return_dict": False,
    }


def z_image(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """Z-Image: a list of one latent (channels, 1, rows, columns), a list of one text, timestep in 0..1."""
    latents = (config["in_channels"], 1, extent["rows"], extent["columns"])
    return {
        "x": [draw.normal("x", latents)],
        "t": draw.values([0.5]),
        "cap_feats": [draw.normal("cap_feats", (extent["text"], config["cap_feat_dim"]))],
        "return_dict": False,
    }
