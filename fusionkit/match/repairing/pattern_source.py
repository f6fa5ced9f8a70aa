"""The source of a repair: text and groups of a pattern file or of a kit pattern's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import fusionkit.patterns
from fusionkit.errors import MisuseError
from fusionkit.fusions import pattern_names
from fusionkit.passes.graph_entries import FileGroup
from fusionkit.passes.registering import PatternClass
from fusionkit.passes.registry import pattern_registry
from fusionkit.pattern_files.pattern_file import read_pattern_file


@dataclass(frozen=True, slots=True)
class PatternSource:
    """`label`: the name or path that the caller gave; `groups`: names of the file's lists -> classes."""

    label: str
    file_name: str
    text: str
    groups: Mapping[str, Sequence[PatternClass]]


def read_source(pattern: str | Path) -> PatternSource:
    """Load a pattern file, or the file of a kit pattern. Raises MisuseError if it is missing or cannot be used."""
    path = Path(pattern)
    if path.suffix != ".py":
        path = _kit_file(str(pattern))
    return PatternSource(str(pattern), path.name, path.read_text("utf-8"), groups_of_file(path))


def groups_of_file(path: Path, *, with_entries: bool = False) -> dict[str, Sequence[PatternClass]]:
    """The `...PatternGroup` lists of a file; `with_entries` adds its graph entries as a first group.

    Raises MisuseError when it has neither.
    """
    file = read_pattern_file(path)
    groups: dict[str, Sequence[PatternClass]] = dict(file.groups)
    if file.entries and with_entries:
        return {"graph_entries": FileGroup("graph_entries", (), file.entries), **groups}
    if not groups:
        raise MisuseError(
            f"{path}: has graph entries only, which no repair can write anew; mend their handler"
        )
    return groups


def _kit_file(name: str) -> Path:
    if name not in pattern_names():
        raise MisuseError(
            f"'{name}' is no pattern of the kit and no .py file; known: {', '.join(pattern_names())}"
        )
    group, _ = pattern_registry[f"enable_{name}"]
    folder = Path(fusionkit.patterns.__path__[0])
    for path in sorted(folder.glob("*_pattern.py")):
        if f"\n{group} = " in path.read_text("utf-8"):
            return path
    raise MisuseError(f"pattern '{name}': no file of the kit defines {group}")
