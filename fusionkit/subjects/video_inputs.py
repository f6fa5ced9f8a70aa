"""The keyword arguments of the video models' forwards, as their pipelines of diffusers 0.42 pass them.

Latents have `frames` x `rows` x `columns` places of `extent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusionkit.subjects.inputs import InputDraw

# MiniMax-H3's tags of a row's modality: transformer_minimax_h3.py of diffusers.
_VIDEO, _TEXT, _AUDIO = 0, 1, 2


def wan(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """Wan: video latents (1, channels, frames, rows, columns), an integer timestep in 0..1000, text."""
    return {
        "hidden_states": draw.normal("hidden_states", _latents(config, extent)),
        "timestep": draw.values([500], integer=True),
        "encoder_hidden_states": draw.normal(
            "encoder_hidden_states", (1, extent["text"], config["text_dim"])
        ),
        "return_dict": False,
    }


def hunyuan_video(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """HunyuanVideo: video latents, timestep in 0..1000, text padded to its length, pooled text, guidance.

    The last quarter of the text is padding; guidance is a thousandfold, as HunyuanVideoPipeline passes it.
    """
    text = extent["text"]
    padding = text // 4
    return {
        "hidden_states": draw.normal("hidden_states", _latents(config, extent)),
        "timestep": draw.values([500]),
        "encoder_hidden_states": draw.normal("encoder_hidden_states", (1, text, config["text_embed_dim"])),
        "encoder_attention_mask": draw.values([[1] * (text - padding) + [0] * padding], integer=True),
        "pooled_projections": draw.normal("pooled_projections", (1, config["pooled_projection_dim"])),
        "guidance": draw.values([6000.0]) if config["guidance_embeds"] else None,
        "return_dict": False,
    }


def minimax_h3(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """MiniMax-H3: one sequence of text, audio and video rows; audio rows have a timestep of their own.

    `rows` and `columns` count patches; a video row is a patch of every channel. Positions are (time, row,
    column) in whole steps, where the modular pipeline's are fractions of a canvas. Timesteps are in 0..1.
    """
    text, audio = extent["text"], extent["audio"]
    frames, rows, columns = extent["frames"], extent["rows"], extent["columns"]
    video = frames * rows * columns
    patch = (
        config["in_channels"] * config["patch_size"][0] * config["patch_size"][1] * config["patch_size"][2]
    )
    positions = [[time, 0, 0] for time in range(text)]
    positions += [[text + time, 0, 0] for time in range(audio)]
    positions += [
        [text + frame, row, column]
        for frame in range(frames)
        for row in range(rows)
        for column in range(columns)
    ]
    places = list(range(text + audio + video))
    return {
        "hidden_states": draw.normal("hidden_states", (1, video, patch)),
        "audio_hidden_states": draw.normal("audio_hidden_states", (1, audio, config["audio_in_channels"])),
        "encoder_hidden_states": draw.normal("encoder_hidden_states", (1, text, config["text_dim"])),
        "timestep": draw.values([0.25, 0.5]),
        "timestep_indices": draw.values([1] * text + [0] * audio + [1] * video, integer=True),
        "token_tags": draw.values([_TEXT] * text + [_AUDIO] * audio + [_VIDEO] * video, integer=True),
        "position_ids": draw.values(positions, integer=True),
        "text_indices": draw.values(places[:text], integer=True),
        "audio_indices": draw.values(places[text : text + audio], integer=True),
        "video_indices": draw.values(places[text + audio :], integer=True),
        "return_dict": False,
    }


def _latents(config: Mapping[str, Any], extent: Mapping[str, int]) -> tuple[int, ...]:
    return (1, config["in_channels"], extent["frames"], extent["rows"], extent["columns"])
