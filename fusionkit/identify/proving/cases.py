"""The calls of one proof: lengths, masks and optional arguments, as far as the called function knows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fusionkit.identify.proving import rotary_tables
from fusionkit.identify.proving.masks import MASKED_OPS, mask_parameters, masks_for, masks_of_either_kind
from fusionkit.identify.proving.recipes import Maker
from fusionkit.identify.proving.setting import Manner
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

_BY_VALUE = ("npu_rms_norm", "npu_add_rms_norm", "npu_swiglu", "npu_geglu", "npu_gelu")
_ROW_SCALES = (2.0**-10, 1.0, 2.0**7, 2.0**13)
"""Rows near a norm's eps, and rows that reach limits; powers of two, so that what only compares values decides alike."""

_CAUSAL = ("is_causal", "causal")
_SECOND: dict[str, Maker] = {"encoder_hidden_states": lambda setting: setting.tensor("B L C")}


@dataclass(frozen=True, slots=True)
class Case:
    """Arguments beside those that have to be given: name -> how it is made.

    `rows_without_key`: first rows of the last sequence of which the mask drops every key. What a model computes there
    is padding that nothing reads: it is compared forward, and no gradient comes from it. `masked`: the parameter that is
    given a mask, of this `kind`: once it takes one kind, it is not given another. `row_scales`: factors of the rows of
    every floating argument, in turn; such a call is compared forward only, and at one size.
    """

    name: str
    given: Mapping[str, Maker] = field(default_factory=dict)
    manner: Manner | None = None
    rows_without_key: int = 0
    masked: str = ""
    kind: str = ""
    row_scales: tuple[float, ...] = ()


def cases(site: Site, parameters: Mapping[str, object], *, either_mask: bool = False) -> Iterator[Case]:
    """The cases of a call with these parameters. Those that the original cannot run are left out by the caller.

    `either_mask`: the code hands its mask to a function that takes boolean and float ones.
    """
    yield Case("plain")
    if site.op in _BY_VALUE:
        yield Case("rows of every scale", row_scales=_ROW_SCALES)
    if site.op in MASKED_OPS:
        yield from (Case("causal", {name: lambda _: True}) for name in _CAUSAL if name in parameters)
        two = "encoder_hidden_states" in parameters
        for name in mask_parameters(parameters):
            for mask in (
                masks_of_either_kind(two_sequences=two)
                if either_mask
                else masks_for(site.hazards, two_sequences=two)
            ):
                yield Case(
                    mask.told,
                    {name: mask.made} | (_SECOND if mask.of_two else {}),
                    rows_without_key=mask.rows_without_key,
                    masked=name,
                    kind=mask.kind,
                )
    if site.op in ("npu_rms_norm", "npu_swiglu", "npu_geglu") and "gate" in parameters:
        yield Case("with gate", {"gate": lambda setting: setting.tensor("B S C")})
    if "encoder_hidden_states" in parameters and site.op != "npu_rotary_mul":
        yield Case("second input", _SECOND)
    if site.op == "npu_rotary_mul":
        yield from _rotations(parameters)


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
            yield Case("rotary by position", {name: rotary_tables.by_position}, Manner("B S H D"))
            yield Case("rotary, complex", {name: rotary_tables.complex_table})
