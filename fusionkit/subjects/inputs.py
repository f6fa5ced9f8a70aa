"""The keyword arguments of each subject's forward, as its pipeline (diffusers 0.42) or generation loop passes them.

A builder gets the model's configuration, the extent of the inputs and a draw of seeded tensors, and returns keyword
arguments that make the output a tuple of tensors without a cache. Latents have `rows` x `columns` places of `extent`,
a video's `frames` times as many; a packed model gets one token for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Protocol

# MiniMax-H3's tags of a row's modality: transformer_minimax_h3.py of diffusers.
_VIDEO, _TEXT, _AUDIO = 0, 1, 2


class InputDraw(Protocol):
    """Seeded random tensors on the subject's device; each depends on the seed and its label only."""

    def normal(self, label: str, shape: Sequence[int], std: float = 1.0) -> Any:
        """Standard normal values times `std`, in the subject's dtype."""

    def integers(self, label: str, shape: Sequence[int], high: int) -> Any:
        """Uniform int64 values in [0, high)."""

    def values(self, values: Sequence[Any], *, integer: bool = False) -> Any:
        """Given numbers, in the subject's dtype or as int64."""


def language(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """A causal language model: token ids (1, tokens) of a prefill without padding, no cache."""
    return {
        "input_ids": draw.integers("input_ids", (1, extent["text"]), config["vocab_size"]),
        "use_cache": False,
        "return_dict": False,
    }


def flux(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """FLUX: packed latents, text, pooled text, timestep in 0..1, guidance, ids.

    Image ids are (0, row, column), text ids zero, as FluxPipeline sets them; guidance where it is embedded.
    """
    return {
        **_packed(config, extent, draw),
        "pooled_projections": draw.normal("pooled_projections", (1, config["pooled_projection_dim"])),
        "timestep": draw.values([0.5]),
        "guidance": draw.values([3.5]) if config["guidance_embeds"] else None,
        "img_ids": draw.values([[0, row, column] for row, column in _places(extent)]),
        "txt_ids": draw.values([[0, 0, 0]] * extent["text"]),
        "return_dict": False,
    }


def flux2(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """FLUX.2: packed latents, text, timestep in 0..1, guidance, integer ids (tokens, 4).

    Image ids are (0, row, column, 0), text ids (0, 0, 0, position), as Flux2Pipeline sets them.
    """
    return {
        **_packed(config, extent, draw),
        "timestep": draw.values([0.5]),
        "guidance": draw.values([4.0]) if config["guidance_embeds"] else None,
        "img_ids": draw.values([[0, row, column, 0] for row, column in _places(extent)], integer=True),
        "txt_ids": draw.values([[0, 0, 0, position] for position in range(extent["text"])], integer=True),
        "return_dict": False,
    }


def qwen_image(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """Qwen-Image: packed latents, text, timestep in 0..1, the latents' (frames, rows, columns).

    No mask: QwenImagePipeline drops a mask that hides nothing.
    """
    return {
        **_packed(config, extent, draw),
        "encoder_hidden_states_mask": None,
        "timestep": draw.values([0.5]),
        "img_shapes": [[(1, extent["rows"], extent["columns"])]],
        "guidance": None,
        "return_dict": False,
    }


def sd3(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """Stable Diffusion 3: latents (1, channels, rows, columns), text, pooled text, timestep in 0..1000."""
    latents = (1, config["in_channels"], extent["rows"], extent["columns"])
    return {
        "hidden_states": draw.normal("hidden_states", latents),
        "encoder_hidden_states": _text(config["joint_attention_dim"], extent, draw),
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


def wan(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """Wan: video latents (1, channels, frames, rows, columns), an integer timestep in 0..1000, text."""
    return {
        "hidden_states": _video(config, extent, draw),
        "timestep": draw.values([500], integer=True),
        "encoder_hidden_states": _text(config["text_dim"], extent, draw),
        "return_dict": False,
    }


def hunyuan_video(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """HunyuanVideo: video latents, timestep in 0..1000, text padded to its length, pooled text, guidance.

    The last quarter of the text is padding; guidance is a thousandfold, as HunyuanVideoPipeline passes it.
    """
    padding = extent["text"] // 4
    mask = [1] * (extent["text"] - padding) + [0] * padding
    return {
        "hidden_states": _video(config, extent, draw),
        "timestep": draw.values([500]),
        "encoder_hidden_states": _text(config["text_embed_dim"], extent, draw),
        "encoder_attention_mask": draw.values([mask], integer=True),
        "pooled_projections": draw.normal("pooled_projections", (1, config["pooled_projection_dim"])),
        "guidance": draw.values([6000.0]) if config["guidance_embeds"] else None,
        "return_dict": False,
    }


def minimax_h3(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """MiniMax-H3: one sequence of text, audio and video rows; audio rows have a timestep of their own.

    `rows` and `columns` count patches; a video row is a patch of every channel. Positions are (time, row,
    column) in whole steps, where the modular pipeline's are fractions of a canvas. Timesteps are in 0..1.
    """
    text, audio, video = extent["text"], extent["audio"], extent["frames"] * len(_places(extent))
    positions = [[time, 0, 0] for time in range(text + audio)]
    positions += [[text + frame, *place] for frame in range(extent["frames"]) for place in _places(extent)]
    places = list(range(text + audio + video))
    patch = config["in_channels"] * prod(config["patch_size"])
    return {
        "hidden_states": draw.normal("hidden_states", (1, video, patch)),
        "audio_hidden_states": draw.normal("audio_hidden_states", (1, audio, config["audio_in_channels"])),
        "encoder_hidden_states": _text(config["text_dim"], extent, draw),
        "timestep": draw.values([0.25, 0.5]),
        "timestep_indices": draw.values([1] * text + [0] * audio + [1] * video, integer=True),
        "token_tags": draw.values([_TEXT] * text + [_AUDIO] * audio + [_VIDEO] * video, integer=True),
        "position_ids": draw.values(positions, integer=True),
        "text_indices": draw.values(places[:text], integer=True),
        "audio_indices": draw.values(places[text : text + audio], integer=True),
        "video_indices": draw.values(places[text + audio :], integer=True),
        "return_dict": False,
    }


def _packed(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """The packed latents (1, places, channels) and the text of a FLUX-like model."""
    shape = (1, len(_places(extent)), config["in_channels"])
    text = _text(config["joint_attention_dim"], extent, draw)
    return {"hidden_states": draw.normal("hidden_states", shape), "encoder_hidden_states": text}


def _video(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> Any:
    shape = (1, config["in_channels"], extent["frames"], extent["rows"], extent["columns"])
    return draw.normal("hidden_states", shape)


def _text(width: int, extent: Mapping[str, int], draw: InputDraw) -> Any:
    return draw.normal("encoder_hidden_states", (1, extent["text"], width))


def _places(extent: Mapping[str, int]) -> list[tuple[int, int]]:
    """Row and column of each place, row by row."""
    return list(product(range(extent["rows"]), range(extent["columns"])))
