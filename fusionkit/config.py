"""What a compile is to do: which fusions, in which window, with which decomposition table."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fusionkit.errors import MisuseError

WINDOWS = ("before-freezing", "after-freezing")
DECOMPOSITIONS = ("none", "inductor")


@dataclass(frozen=True, slots=True)
class FusionPatterns:
    """One flag per fusion, default on: the only place where fusions are switched.

    Each flag says: chain, carrier, what it depends on, what the default rests on. Off: set the flag to False.
    """

    # cast, square, mean, +eps, rsqrt, scale, gain -> npu_rms_norm; register_replacement; hits on FLUX, Wan, Llama.
    enable_rms_norm: bool = True
    # x*cos + rotate(x)*sin, interleaved and half -> npu_rotary_mul; register_replacement; hits on FLUX, Llama.
    enable_rope: bool = True
    # silu(gate(x)) * up(x) -> one linear, npu_swiglu; register_replacement; hits on Llama.
    enable_swiglu: bool = True
    # layer norm without affine, *(1+scale), +shift -> layer_norm_scale_shift; register_replacement; hits on FLUX.
    enable_ada_layer_norm: bool = True
    # gelu(approximate="tanh") -> npu_gelu; register_replacement; hits on FLUX, Wan.
    enable_gelu: bool = True


def flag_names() -> tuple[str, ...]:
    """All flags of FusionPatterns, in the order in which their fusions are tried."""
    return tuple(item.name for item in dataclasses.fields(FusionPatterns))


def pattern_names() -> tuple[str, ...]:
    """The command-line names of the fusions: their flags without `enable_`."""
    return tuple(name.removeprefix("enable_") for name in flag_names())


def select_patterns(names: tuple[str, ...]) -> FusionPatterns:
    """Flags with exactly the named fusions on. Raises MisuseError for a name that is none."""
    for name in names:
        if name not in pattern_names():
            raise MisuseError(f"unknown pattern '{name}'; known: {', '.join(pattern_names())}")
    return FusionPatterns(**{f"enable_{name}": name in names for name in pattern_names()})


@dataclass(frozen=True, slots=True)
class CompilationConfig:
    """Everything a compile through the `fusionkit` backend depends on.

    `window`: where patterns are applied. `decompositions`: "none" (an empty table) or "inductor".
    `pattern_files`: files of pattern groups, tried before the kit's own. `freezing`: fold parameters after
    the first window; implied by `window="after-freezing"`. `capsule`: path to write the graphs to.
    """

    fusion_patterns: FusionPatterns = field(default_factory=FusionPatterns)
    pattern_files: tuple[str, ...] = ()
    window: str = "before-freezing"
    decompositions: str = "none"
    freezing: bool = False
    capsule: str | None = None

    def __post_init__(self) -> None:
        if self.window not in WINDOWS:
            raise MisuseError(f"unknown window '{self.window}'; use one of: {', '.join(WINDOWS)}")
        if self.decompositions not in DECOMPOSITIONS:
            raise MisuseError(
                f"unknown decomposition table '{self.decompositions}'; use one of: {', '.join(DECOMPOSITIONS)}"
            )

    @property
    def freezes(self) -> bool:
        """Whether the graph is frozen between the two windows."""
        return self.freezing or self.window == "after-freezing"


def config_from_options(options: Mapping[str, Any] | None) -> CompilationConfig:
    """Build a config from torch.compile's `options` dict.

    `patterns` (list of names) selects fusions; every other key is a field of CompilationConfig.
    Raises MisuseError for a key that is neither.
    """
    given = dict(options or {})
    names = given.pop("patterns", None)
    known = [item.name for item in dataclasses.fields(CompilationConfig)]
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, [*known, "patterns"], 1)
            hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(['patterns', *known])}"
            raise MisuseError(f"unknown option '{key}' for backend fusionkit; {hint}")
    if names is not None:
        given["fusion_patterns"] = select_patterns(tuple(names))
    if "pattern_files" in given:
        given["pattern_files"] = tuple(str(path) for path in given["pattern_files"])
    return CompilationConfig(**given)
