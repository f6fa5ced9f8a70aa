"""Every name of a fusion, derived from one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fusionkit.errors import MisuseError


@dataclass(frozen=True, slots=True)
class FusionNames:
    """The names that one fusion goes by: file, class, group, flag and command-line name."""

    name: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", self.name):
            raise MisuseError(f"'{self.name}' is no fusion name; use lower_snake_case, such as flux_rms_norm")

    @property
    def file(self) -> str:
        """`{name}_pattern.py`."""
        return f"{self.name}_pattern.py"

    @property
    def module(self) -> str:
        """The file without `.py`."""
        return f"{self.name}_pattern"

    @property
    def pattern_class(self) -> str:
        """`{Name}Pattern`."""
        return f"{camel(self.name)}Pattern"

    @property
    def group(self) -> str:
        """`{Name}PatternGroup`."""
        return f"{camel(self.name)}PatternGroup"

    @property
    def flag(self) -> str:
        """`enable_{name}`."""
        return f"enable_{self.name}"


def camel(name: str) -> str:
    """`rms_norm` -> `RmsNorm`."""
    return "".join(part.capitalize() for part in name.split("_"))


def names_of_file(stem: str) -> FusionNames:
    """The names that belong to a pattern file's stem; `_pattern` at its end is not part of the name."""
    cleaned = re.sub(r"[^a-z0-9]+", "_", stem.removesuffix("_pattern").lower()).strip("_")
    return FusionNames(cleaned or "unnamed")
