"""Configuration of a compile: fusions, window, decomposition table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fusionkit.errors import MisuseError, near_names
from fusionkit.fusions import pattern_names, registrations

WINDOWS = ("before-freezing", "after-freezing")
DECOMPOSITIONS = ("none", "inductor")
TARGETS = ("cpu", "npu-dry", "npu")


def check_target(name: str) -> str:
    """The name of a target. Raises MisuseError for any other name."""
    if name not in TARGETS:
        raise MisuseError(f"target {name!r} is unknown; choose one of {', '.join(TARGETS)}")
    return name


@dataclass(frozen=True, slots=True)
class FusionPatterns:
    """One flag per fusion, default on; False switches the fusion off. Fusions are switched nowhere else.

    The rows of `fusions` describe what each replaces.
    """

    enable_rms_norm: bool = True
    enable_rope: bool = True
    enable_swiglu: bool = True
    enable_ada_layer_norm: bool = True
    enable_gelu: bool = True


def flag_names() -> tuple[str, ...]:
    """All flags of FusionPatterns, in the order in which their fusions are tried."""
    return tuple(item.name for item in dataclasses.fields(FusionPatterns))


def select_patterns(names: tuple[str, ...]) -> FusionPatterns:
    """Flags with exactly the named fusions on. Raises MisuseError for an unknown name, and for a row without a flag."""
    for name in names:
        if name not in pattern_names():
            raise MisuseError(f"unknown pattern '{name}'; {near_names(name, pattern_names())}")
    for name, pattern in registrations().items():
        if pattern.flag not in flag_names():
            raise MisuseError(
                f"row {name} of fusions has no flag {pattern.flag} in config.FusionPatterns; add it"
            )
    flags = {pattern.flag: name in names for name, pattern in registrations().items()}
    return FusionPatterns(**flags)


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
            raise MisuseError(
                f"unknown option '{key}' for backend fusionkit; {near_names(key, ['patterns', *known])}"
            )
    if names is not None:
        given["fusion_patterns"] = select_patterns(tuple(names))
    if "pattern_files" in given:
        given["pattern_files"] = tuple(str(path) for path in given["pattern_files"])
    return CompilationConfig(**given)


def config_for_patterns(patterns: Sequence[str], **options: Any) -> CompilationConfig:
    """A config with exactly these patterns: names of the kit, and pattern files (`*.py`), which are tried first."""
    files = tuple(name for name in patterns if name.endswith(".py"))
    names = tuple(name for name in patterns if not name.endswith(".py"))
    return CompilationConfig(fusion_patterns=select_patterns(names), pattern_files=files, **options)
