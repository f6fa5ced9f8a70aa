"""The masks of one proof: what is dropped, and how a mask tells it.

What code means by True is not known beforehand. So no mask drops a whole row under either reading, and every mask
differs from its own inverse: a replacement that reads it the other way gives other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from fusionkit.identify.proving.setting import Setting

Tensor = torch.Tensor
Maker = Callable[[Setting], Tensor]

MASKED_OPS = ("npu_fusion_attention", "npu_scaled_masked_softmax")
"""Ops that take a mask."""

_OTHER = ("head_mask", "layer_head_mask", "cross_attn_head_mask", "loss_mask", "output_mask", "mask_token")
_PADDED = 2  # keys that are padding, where there is any

LEFT_PADDED = "additive causal mask with padding"
"""The one case with rows without a key: models make such masks, and nothing reads those rows."""


@dataclass(frozen=True, slots=True)
class Mask:
    """One mask: what it is called, how it is made, and its kind: a call that takes one kind is not given another.

    `rows_without_key`: first rows of the last sequence of which every key is dropped.
    """

    told: str
    kind: str
    made: Maker
    rows_without_key: int = 0

    @property
    def of_two(self) -> bool:
        """Whether the keys are another sequence's, or those of both."""
        return any(told in self.told for told in _OF_TWO)


def mask_parameters(parameters: Mapping[str, object]) -> list[str]:
    """Parameters that are masks of keys by their names."""
    return [name for name in parameters if name.endswith("mask") and name not in _OTHER]


def masks_of_either_kind(*, two_sequences: bool) -> Iterator[Mask]:
    """Of each shape a boolean mask of which True keeps and a float one: what scaled_dot_product_attention takes."""
    for told, dropped in (_SHAPES | (_OF_TWO if two_sequences else {})).items():
        yield Mask(f"boolean {told}", "either", _then(torch.logical_not, dropped))
        yield Mask(f"additive {told}", "either", _then(_added, dropped))


def masks_for(hazards: tuple[str, ...], *, two_sequences: bool = False) -> Iterator[Mask]:
    """Those of the kinds that code with these hazards takes; of every kind where none of them tells it.

    `two_sequences`: the keys may be another sequence's, or those of both.
    """
    added, keeps = "mask_additive" in hazards, "mask_bool_keep" in hazards
    shapes = _SHAPES | (_OF_TWO if two_sequences else {})
    if added or not keeps:
        for told, dropped in shapes.items():
            yield Mask(f"additive {told}", "additive", _then(_added, dropped))
            if added and dropped is _causal:
                yield Mask(LEFT_PADDED, "additive", _then(_added, _left_padding), _PADDED)
    if keeps or not added:
        for told, dropped in shapes.items():
            made = _then(torch.logical_not, dropped) if keeps else dropped
            yield Mask(f"boolean {told}", "boolean", made)
            yield Mask(f"0/1 {told}", "number", _then(Tensor.float, made))
    if added:
        # (1 - mask) * lowest is an addition too, of a mask of which 1 keeps
        for told, dropped in shapes.items():
            yield Mask(f"0/1 {told}", "number", _then(Tensor.float, _then(torch.logical_not, dropped)))


def _then(change: Callable[[Tensor], Tensor], made: Maker) -> Maker:
    return lambda setting: change(made(setting))


def _causal(setting: Setting) -> Tensor:
    """[B, 1, S, S], True above the diagonal; the last row, which would keep all, drops its first key."""
    dropped = torch.ones((setting.batch, 1, setting.length, setting.length), dtype=torch.bool).triu(1)
    dropped[..., -1, 0] = setting.length > 1
    return dropped


def _left_padding(setting: Setting) -> Tensor:
    """[B, 1, S, S], causal with padding on the left of the last sequence: rows without a key are among it."""
    dropped = torch.ones((setting.batch, 1, setting.length, setting.length), dtype=torch.bool).triu(1)
    dropped[-1, :, :, :_PADDED] = True
    return dropped


def _padding(setting: Setting, keys: str = "S") -> Tensor:
    """[B, S]: the last key of every sequence is dropped, the last two of the last one; the first one is kept.

    `keys`: axes whose lengths make the number of keys.
    """
    dropped = torch.zeros((setting.batch, sum(setting.shape(keys.split()))), dtype=torch.bool)
    dropped[:, -1] = dropped[-1, -_PADDED:] = True
    return dropped


_SHAPES: dict[str, Maker] = {
    "causal mask": _causal,
    "padding mask": lambda setting: _padding(setting)[:, None, None].expand(-1, 1, setting.length, -1),
    "padding mask [B, 1, 1, S]": lambda setting: _padding(setting)[:, None, None],
    "mask [B, S]": _padding,
    "mask [B, S, S]": lambda setting: _causal(setting)[:, 0],
    "mask [S, S]": lambda setting: _causal(setting)[0, 0],
}
"""What is dropped, in the shapes in which models hand it over; those that the original cannot take are left out."""

_OF_TWO: dict[str, Maker] = {
    "padding mask [B, 1, 1, L] of the other sequence": lambda setting: _padding(setting, "L")[:, None, None],
    "padding mask [B, 1, 1, L + S] of both sequences": lambda setting: _padding(setting, "L S")[
        :, None, None
    ],
    "mask [B, L] of the other sequence": lambda setting: _padding(setting, "L"),
}
"""The same of keys that are another sequence's, or of both sequences behind each other."""


def _added(dropped: Tensor) -> Tensor:
    return torch.zeros(dropped.shape).masked_fill(dropped, torch.finfo(torch.float32).min)
