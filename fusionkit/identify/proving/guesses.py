"""What is tried for a parameter that no recipe knows: any value at which the original runs is a fair one, for both sides.

A shape that does not fit raises, and the next is tried; a parameter of which none fits is named in the reason.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping

import torch

from fusionkit.identify.proving import rotary_tables
from fusionkit.identify.proving.recipes import Maker, axes_maker, positions
from fusionkit.identify.proving.setting import Setting

MOST = 48
"""So many combinations are tried for one call."""

_SHAPES = ("B S C", "B C", "T C", "B S", "B H S D", "B S H D", "S C", "B", "C")
_TABLES: tuple[Maker, ...] = (
    rotary_tables.tables,
    rotary_tables.complex_table,
    rotary_tables.angles,
    lambda setting: torch.stack(rotary_tables.tables(setting)),
)
AMBIGUOUS = ("freqs", "freqs_cis", "rotary_emb", "image_rotary_emb")
"""Parameters of a rotation that are tables in one model and angles in another."""

_BY_NAME: tuple[tuple[tuple[str, ...], tuple[Maker | str, ...]], ...] = (
    (("position_ids", "positions", "position", "pos"), (positions, lambda s: positions(s)[0])),
    (("rope", "rotary", "rotary_pos_emb", "pos_emb", "freqs", "position_embedding"), _TABLES),
    (("temb", "time_emb", "timestep_emb", "emb", "shift", "scale_shift"), ("B C", "B S C", "B 6 C")),
    (("latents", "query_tokens", "states", "embeds", "features", "input", "data"), ("B S C", "T C", "B C")),
)
"""Endings of names -> what is likeliest, before the usual shapes."""

_BUILD: tuple[tuple[tuple[str, ...], str | int | float | bool], ...] = (
    (("heads", "num_head"), "heads"),
    (("head_dim", "head_size"), "head_dim"),
    (
        ("ffn_dim", "ff_dim", "inner_dim", "intermediate_dim", "intermediate_size", "hidden_features"),
        "intermediate",
    ),
    (("dim", "size", "channels", "features", "width"), "hidden"),
    (("bias",), True),
    (("ratio", "groups", "layers", "num_layers", "depth", "factor"), 1),
)
"""Endings of the names of what builds a class -> number of Sizes by its name, or a constant."""

_BY_ANNOTATION: dict[str, int | float | bool] = {"bool": False, "int": 1, "float": 1.0}


def build_guess(name: str, parameter: inspect.Parameter, setting: Setting) -> int | float | bool | None:
    """What a class may be built with; None where neither the name nor the annotation tells."""
    for endings, value in _BUILD:
        if any(name == ending or name.endswith(f"_{ending}") for ending in endings):
            return getattr(setting.sizes, value) if isinstance(value, str) else value
    return _BY_ANNOTATION.get(_annotated(parameter))


def call_guesses(
    unknown: Mapping[str, Maker | None], parameters: Mapping[str, inspect.Parameter]
) -> Iterator[dict[str, Maker]]:
    """Makers for the parameters `unknown`, the likeliest first; one empty dict where there are none.

    A parameter that has a recipe (not None), but is called by its name for different things, is given that first.
    """
    tried = [
        [(name, maker) for maker in ([known, *_TABLES] if known else _makers(name, parameters[name]))]
        for name, known in unknown.items()
    ]
    for combined in itertools.islice(itertools.product(*tried), MOST):
        yield dict(combined)


def _makers(name: str, parameter: inspect.Parameter) -> list[Maker]:
    plain = _BY_ANNOTATION.get(_annotated(parameter))
    if plain is not None:
        return [lambda _: plain]
    likely = [maker for endings, makers in _BY_NAME for maker in makers if name.endswith(endings)]
    told = dict.fromkeys([*likely, *_SHAPES])
    return [axes_maker(item) if isinstance(item, str) else item for item in told] + [lambda _: None]


def _annotated(parameter: inspect.Parameter) -> str:
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return text.partition("|")[0].strip(" \"'")
