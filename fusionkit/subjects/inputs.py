"""The keyword arguments of each subject's forward, as its pipeline or generation loop passes them.

A builder gets the model's configuration, the extent of the inputs and a draw of seeded tensors, and returns keyword
arguments that make the output a tuple of tensors without a cache. The builders of the diffusion models are in
image_inputs and video_inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


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
