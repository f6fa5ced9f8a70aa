"""One case: a pattern file, a graph, and what an explanation must say of each site that is dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fusionkit.capture.graphs import Capture
from fusionkit.config import CompilationConfig
from mismatches.labels import Expected
from mismatches.sites import Site


@dataclass(frozen=True, slots=True)
class Case:
    """`files`: name -> text, the first one the pattern under trial. `pattern`: a kit name in its stead.

    `registered`: the files that the config names, in its order; `config` its other fields.
    """

    name: str
    subject: str
    variant: str
    operator: str
    capture: Capture
    expected: tuple[Expected, ...]
    sites: tuple[Site, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    pattern: str | None = None
    registered: tuple[str, ...] | None = None
    config: Mapping[str, Any] | None = None
    repairable: bool = False

    @property
    def types(self) -> tuple[str, ...]:
        """The expected types."""
        return tuple(dict.fromkeys(label.type for item in self.expected for label in item.labels))

    def write(self, folder: Path) -> str | Path:
        """Write the files; what to ask about."""
        for name, text in self.files.items():
            (folder / name).write_text(text, "utf-8")
        return self.pattern if self.pattern is not None else folder / next(iter(self.files))

    def config_in(self, folder: Path) -> CompilationConfig | None:
        """The config of the case, None where the pattern alone is tried."""
        if self.registered is None and self.config is None:
            return None
        paths = tuple(str(folder / name) for name in self.registered or ())
        return CompilationConfig(pattern_files=paths, **dict(self.config or {}))


HEAD = "from {group} as Originals\nfrom mismatches.classes import {names}\n\n"


def file_text(group: str, *classes: str) -> str:
    """A pattern file with these classes, each an expression over `Originals`; `group`: where they are, "M import G"."""
    used = (
        "change",
        "mutated",
        "with_scalar",
        "with_closure",
        "with_unused",
        "with_misfit",
        "raising_elsewhere",
        "as_one_op",
        "by_default_table",
        "takes",
    )
    names = ", ".join(name for name in used if any(f"{name}(" in text for text in classes)) or "mutated"
    body = "".join(f"    {text},\n" for text in classes)
    return HEAD.format(group=group, names=names) + f"CasePatternGroup = [\n{body}]\n"


def steps_text(index: int, steps: tuple[tuple[str, int, int], ...]) -> str:
    """The expression of a variant with some ops changed."""
    told = ", ".join(f'change("{operator}", at={at}, seed={seed})' for operator, at, seed in steps)
    return f"mutated(Originals[{index}], {told})"
