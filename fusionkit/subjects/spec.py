"""The rows of the table of subjects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fusionkit.counters import SiteCounter
from fusionkit.errors import MisuseError
from fusionkit.subjects.inputs import InputDraw

SIZES = ("tiny", "full")
DTYPES = ("bfloat16", "float16", "float32", "float64")
DTYPE_ALIASES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectSpec:
    """One row of the table. Pairs are values of the tiny and of the full size, see `at` and SizeSpec.

    `model` and `configuration` are `package:Class`; a model without a configuration class takes the values directly.
    `sizes` and `same`: the values of `config` that differ between the sizes, and those that do not.
    `inputs` builds the keyword arguments of forward. `primitives`: those whose sites the counters count completely in
    this model; others have no independent count. `counters`: counters for functions of this model's library module.
    """

    name: str
    model: str
    configuration: str | None = None
    sizes: Mapping[str, tuple[Any, Any]]
    same: Mapping[str, Any]
    extent: Mapping[str, tuple[int, int]]
    sources: tuple[str, str]
    inputs: InputBuilder
    primitives: tuple[str, ...]
    counters: tuple[SiteCounter, ...] = ()

    def at(self, size: str) -> SizeSpec:
        """The size named "tiny" or "full"."""
        index = SIZES.index(size)
        config = {**self.same, **{key: pair[index] for key, pair in self.sizes.items()}}
        return SizeSpec(config, {key: pair[index] for key, pair in self.extent.items()}, self.sources[index])


def dtype_name(text: str) -> str:
    """torch's name of a dtype, also for `bf16`. Raises MisuseError for any other name."""
    name = DTYPE_ALIASES.get(text, text)
    if name not in DTYPES:
        raise MisuseError(f"unknown dtype '{text}'; use one of: {', '.join(DTYPES)}")
    return name
