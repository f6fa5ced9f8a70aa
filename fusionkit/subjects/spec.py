"""The rows of the table of subjects."""

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

    `config`: arguments of the model class or its configuration class. `extent`: numbers of tokens, frames, rows and
    columns of the inputs. `source`: source of the numbers.
    """

    config: Mapping[str, Any]
    extent: Mapping[str, int]
    source: str


@dataclass(frozen=True, slots=True)
class SubjectSpec:
    """One row of the table.

    `model` and `configuration` are `package:Class`; a model without a configuration class takes the values directly.
    `inputs` builds the keyword arguments of forward. `primitives`: those whose sites the counters count completely in
    this model; others have no independent count. `counters`: counters for functions of this model's library module.
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
