"""What a row of the table of subjects holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fusionkit.counters import SiteCounter
from fusionkit.subjects.inputs import InputDraw

SIZES = ("tiny", "full")

InputBuilder = Callable[[Mapping[str, Any], Mapping[str, int], InputDraw], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class SizeSpec:
    """One size of a subject.

    `config`: what the model class (or its configuration class) is built from. `extent`: how many tokens,
    frames, rows and columns the inputs have. `source`: where the numbers come from.
    """

    config: Mapping[str, Any]
    extent: Mapping[str, int]
    source: str


@dataclass(frozen=True, slots=True)
class SubjectSpec:
    """One row of the table.

    `model` and `configuration` are `package:Class`; a model without a configuration class takes the values
    directly. `inputs` builds the keyword arguments of forward. `primitives` are the ones whose sites the counters of
    the table of fusions and of the subjects count completely in this model; one that is not named has no
    independent count. `counters` are for the functions of this model's own library module.
    """

    name: str
    model: str
    configuration: str | None
    tiny: SizeSpec
    full: SizeSpec
    inputs: InputBuilder
    primitives: tuple[str, ...]
    counters: tuple[SiteCounter, ...] = ()

    def at(self, size: str) -> SizeSpec:
        """The size named "tiny" or "full"."""
        return self.full if size == "full" else self.tiny
