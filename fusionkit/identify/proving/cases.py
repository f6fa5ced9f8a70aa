"""The calls of one proof: lengths, masks and optional arguments, as far as the called function knows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch

from fusionkit.identify.proving import rotary_tables
from fusionkit.identify.proving.recipes import Maker
from fusionkit.identify.proving.setting import Manner, Setting
from fusionkit.identify.scan_file import Site

LENGTHS: tuple[tuple[int, int], ...] = ((2, 7), (1, 5), (2, 16))
"""Batch and sequence length, odd ones first; no length equals a number of heads, so that axes are not mistaken."""

MANNERS: tuple[Manner, ...] = (
    Manner(),
    Manner("B H S D", "B S D"),
    Manner("B H S D", "S D"),
    Manner("B H S D", "B S h"),
    Manner("B H S D", "S h"),
    Manner("B S H D", "own"),
    Manner("B S H D", "S D"),
    Manner("B S H D", "B S D"),
    Manner("B S H D", "B S h"),
    Manner("B S H D", "S h"),
    Manner("S H D", "S D"),
    Manner("S H D", "S h"),
    Manner("B S C", "B S C"),
)
"""How a rotation may be called; the first at which the original runs counts."""


@dataclass(frozen=True, slots=True)
class Case:
    """Arguments beside those that have to be given: name -> how it is made.

    `rows_without_key`: first rows of the last sequence of which the mask drops every key. What a model computes there
    is padding that nothing reads: it is compared forward, and no gradient comes from it.
    """

    name: str
    given: Mapping[str, Maker] = field(default_factory=dict)
    manner: Manner | None = None
    rows_without_key: int = 0


MASKS = ("attention_mask", "attn_mask", "mask")


_PADDED = 2  # keys that are padding, where there is any


def _causal(setting: Setting) -> torch.Tensor:
    """[B, 1, S, S], True above the diagonal: what is dropped."""
    shape = (setting.batch, 1, setting.length, setting.length)
    return torch.ones(shape, dtype=torch.bool).triu(1)


def _padding(setting: Setting) -> torch.Tensor:
    """Causal with padding on the left of the last sequence: rows of which every key is dropped are among it."""
    dropped = _causal(setting)
    dropped[-1, :, :, :_PADDED] = True
    return dropped


def _right_padding(setting: Setting) -> torch.Tensor:
    """[B, 1, S, S], the last two keys of the last sequence dropped; no row is without a key."""
    dropped = torch.zeros((setting.batch, 1, setting.length, setting.length), dtype=torch.bool)
    dropped[-1, :, :, -_PADDED:] = True
    return dropped


def _added(dropped: torch.Tensor) -> torch.Tensor:
    return torch.zeros(dropped.shape).masked_fill(dropped, torch.finfo(torch.float32).min)


_LEFT_PADDED = "additive causal mask with padding"
_ADDITIVE: dict[str, Maker] = {
    "additive causal mask": lambda setting: _added(_causal(setting)),
    _LEFT_PADDED: lambda setting: _added(_padding(setting)),
    "additive padding mask": lambda setting: _added(_right_padding(setting)),
}
_BOOLEAN: dict[str, Maker] = {
    "boolean causal mask": lambda setting: ~_causal(setting),
    "boolean padding mask": lambda setting: ~_right_padding(setting),
    "boolean mask [B, S]": lambda setting: ~_right_padding(setting)[:, 0, 0],
}


def cases(site: Site, parameters: Mapping[str, object]) -> Iterator[Case]:
    """The cases of a call with these parameters. Those that the original cannot run are left out by the caller."""
    yield Case("plain")
    if site.op in ("npu_fusion_attention", "npu_scaled_masked_softmax"):
        for name in [mask for mask in MASKS if mask in parameters][:1]:
            for told, maker in _masks(site).items():
                yield Case(told, {name: maker}, rows_without_key=_PADDED if told == _LEFT_PADDED else 0)
    if site.op == "npu_rms_norm" and "gate" in parameters:
        yield Case("with gate", {"gate": lambda setting: setting.tensor("B S C")})
    if "encoder_hidden_states" in parameters and site.op != "npu_rotary_mul":
        yield Case("second input", {"encoder_hidden_states": lambda setting: setting.tensor("B L C")})
    if site.op == "npu_rotary_mul":
        yield from _rotations(parameters)


def _masks(site: Site) -> dict[str, Maker]:
    """Those of the kind that the code at the site takes."""
    boolean, additive = "mask_bool_keep" in site.hazards, "mask_additive" in site.hazards
    return (_ADDITIVE if additive else {}) | (_BOOLEAN if boolean else {})


def _rotations(parameters: Mapping[str, object]) -> Iterator[Case]:
    if "unsqueeze_dim" in parameters:
        yield Case("unsqueeze_dim 2", {"unsqueeze_dim": lambda _: 2}, Manner("B S H D", "own"))
        yield Case("unsqueeze_dim 2", {"unsqueeze_dim": lambda _: 2}, Manner("B S H D", "B S D"))
    if "use_real_unbind_dim" in parameters:
        given: dict[str, Maker] = {"use_real_unbind_dim": lambda _: -2, "freqs_cis": rotary_tables.halves}
        yield Case("halves", given)
    if "use_real" in parameters:
        yield Case(
            "complex",
            {"use_real": lambda _: False, "freqs_cis": rotary_tables.complex_table},
            Manner("B S H D"),
        )
    if "sequence_dim" in parameters:
        yield Case("sequence_dim 1", {"sequence_dim": lambda _: 1}, Manner("B S H D"))
    for name in ("image_rotary_emb", "rotary_emb"):
        if name in parameters:
            yield Case("rotary", {name: rotary_tables.interleaved})
            yield Case("rotary, complex", {name: rotary_tables.complex_table})
