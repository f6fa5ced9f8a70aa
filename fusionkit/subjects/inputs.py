"""The keyword arguments of each subject's forward, as its own pipeline or generation loop would pass them.

A builder gets the model's configuration, the extent of the inputs and a source of seeded tensors, and returns
keyword arguments that make the output plain: a tuple of tensors, no cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class InputDraw(Protocol):
    """A source of tensors that depend on the seed and on their label only; on the subject's device."""

    def normal(self, label: str, shape: Sequence[int], std: float = 1.0) -> Any:
        """Standard normal values times `std`, in the subject's dtype."""

    def integers(self, label: str, shape: Sequence[int], high: int) -> Any:
        """Uniform int64 values in [0, high)."""

    def values(self, values: Sequence[Any], *, integer: bool = False) -> Any:
        """Given numbers, in the subject's dtype or as int64."""


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


def wan(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """Wan: video latents (1, channels, frames, rows, columns), an integer timestep in 0..1000, text."""
    latents = (1, config["in_channels"], extent["frames"], extent["rows"], extent["columns"])
    return {
        "hidden_states": draw.normal("hidden_states", latents),
        "timestep": draw.values([500], integer=True),
        "encoder_hidden_states": draw.normal(
            "encoder_hidden_states", (1, extent["text"], config["text_dim"])
        ),
        "return_dict": False,
    }


def llama(config: Mapping[str, Any], extent: Mapping[str, int], draw: InputDraw) -> dict[str, Any]:
    """Llama: token ids (1, tokens) of a prefill without padding, no cache."""
    return {
        "input_ids": draw.integers("input_ids", (1, extent["text"]), config["vocab_size"]),
        "use_cache": False,
        "return_dict": False,
    }
