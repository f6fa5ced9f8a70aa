"""The text of a repaired pattern file: the old text, one subclass for each form, and the changed groups."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fusionkit.capture.sources import module_path
from fusionkit.errors import MisuseError
from fusionkit.match.repairing.fits import Fit
from fusionkit.match.repairing.old_variants import OldVariant
from fusionkit.match.repairing.region import Region
from fusionkit.match.repairing.writing import Body, write_body
from fusionkit.match.repairing.writing_entries import write_entry
from fusionkit.passes.registering import name_of
from fusionkit.passes.tracing import TraceFunction

STAND_INS = (0.0113377, 0.0227179, 0.0341551, 0.0457327)
"""Numbers that occur nowhere else in a trace, by which the tracer recognises a scalar argument."""


@dataclass(frozen=True, slots=True)
class NewVariant:
    """A repaired variant: the old one, the regions that it was written from, and its text.

    `entry`: it is a graph entry and not a class; `name` is then its handler's.
    """

    old: OldVariant
    regions: tuple[Region, ...]
    cls: str
    name: str
    edits: tuple[str, ...]
    text: str
    entry: bool = False
    fit: Fit | None = None

    def values_at(self, region: Region) -> dict[str, Any]:
        """The scalars' values at one of its regions."""
        return {} if self.fit is None else Fit(region, self.fit.scalars).values


def write_variant(
    fit: Fit,
    regions: Sequence[Region],
    old: OldVariant,
    number: int,
    edits: Sequence[str],
    trace: TraceFunction,
) -> NewVariant:
    """One subclass of `old` for the form of `regions`. Raises UnexplainedError for a size that no input explains."""
    cls = f"{_stem(old.group)}Repaired{number}"
    name = f"{name_of(old.pattern)}_repaired_{number}"
    body = write_body(regions, old.tensors, fit.scalars)
    lifted = [name for name in fit.values if name in old.written]
    signature = _signature(old, fit, lifted)
    replacement = ""
    if old.rewritten or lifted:
        replacement = _method("replacement", signature, _replacement_body(old, regions[0], fit, trace))
    where = module_path(regions[0].outputs[0]) or regions[0].outputs[0].name
    origin = f"{len(regions)} sites, the first at {where}" if len(regions) > 1 else f"the site at {where}"
    lines = [
        f"class {cls}({old.group}[{old.index}]):",
        f'    """Written from the graph: {origin}."""',
        "",
        *(f"    # {edit}" for edit in edits),
        *([""] if edits else []),
        "    @staticmethod",
        "    def name():",
        f'        return "{name}"',
        "",
        "    @staticmethod",
        "    def inputs():",
        "        return [",
        *(f"            {example_of(regions[0].value(node))}," for node in regions[0].inputs),
        "        ]",
        "",
        *_scalars_method(old, lifted),
        _method("pattern", signature, body) + replacement,
    ]
    return NewVariant(old, tuple(regions), cls, name, tuple(edits), "\n".join(lines).rstrip() + "\n")


def write_entry_variant(
    fit: Fit, regions: Sequence[Region], old: OldVariant, number: int, edits: Sequence[str]
) -> NewVariant:
    """A graph entry with the old replacement, for a form with sizes that no input explains.

    Raises MisuseError if the old replacement's arguments would have to change.
    """
    if old.rewritten or any(name in old.written for name in fit.values):
        raise MisuseError(
            f"pattern {name_of(old.pattern)}: sizes vary and its arguments change; write it anew by hand"
        )
    number_of = {name: index for index, name in enumerate(old.tensors)}
    place_of = {name: place for place, name in fit.scalars.items()}
    stem = re.sub(r"(?<!^)(?=[A-Z])", "_", _stem(old.group).removesuffix("Pattern")).lower()
    name = f"{stem}_repaired_{number}"
    text = write_entry(
        regions,
        [number_of[item] if item in number_of else place_of[item] for item in old.names],
        name=name,
        docstring=f"Written from the graph: {len(regions)} sites whose sizes vary.",
        replacement=f"_{_stem(old.group)}{number}.replacement",
    )
    alias = f"_{_stem(old.group)}{number} = {old.group}[{old.index}]\n\n\n"
    comments = "".join(f"# {edit}\n" for edit in edits)
    return NewVariant(
        old, tuple(regions), "", name, tuple(edits), alias + comments + text, entry=True, fit=fit
    )


def _replacement_body(old: OldVariant, region: Region, fit: Fit, trace: TraceFunction) -> Body:
    traced, places = old.trace_replacement(region, trace)
    chosen = {place: name for place, name in places.items() if name in fit.values}
    return write_body([traced], old.tensors, chosen)


def write_file(
    text: str, kept: Mapping[str, Sequence[int]], added: Sequence[NewVariant], subject: str
) -> str:
    """The old text, the new classes, and each changed group: `kept` old variants by index, then the new ones."""
    parts = [text.rstrip() + "\n"]
    parts.append(f"\n\n# Repaired for {subject}: the variants below are written from its graph.\n")
    if not re.search(r"^import torch$", text, re.MULTILINE):
        parts.append("import torch  # noqa: E402\n")
    parts += [f"\n\n{variant.text}" for variant in added]
    lists = []
    for group in dict.fromkeys([*kept, *(variant.old.group for variant in added)]):
        items = [f"{group}[{index}]" for index in kept.get(group, ())]
        items += [variant.cls for variant in added if variant.old.group == group and not variant.entry]
        lists.append(_list(group, items))
    return "".join(parts) + "\n\n" + "\n".join(lists)


def example_of(value: torch.Tensor) -> str:
    """The expression of an example tensor of this shape and dtype."""
    shape = [int(size) if not isinstance(size, torch.SymInt) else 2 for size in value.shape]
    return f'torch.empty({shape}, dtype={value.dtype}, device="meta")'


def _stem(group: str) -> str:
    return group.removesuffix("Group").strip("_")


def _signature(old: OldVariant, fit: Fit, lifted: Sequence[str]) -> str:
    values = fit.values
    names = [*old.tensors, *old.scalars, *lifted] if lifted else old.names
    return ", ".join(f"{name}={values[name]!r}" if name in values else name for name in names)


def _scalars_method(old: OldVariant, lifted: Sequence[str]) -> list[str]:
    """The method scalars() with the additional stand-ins; none without additional ones."""
    if not lifted:
        return []
    free = [value for value in STAND_INS if value not in old.scalars.values()]
    values = dict(old.scalars) | dict(zip(lifted, free, strict=False))
    pairs = ", ".join(f'"{name}": {value}' for name, value in values.items())
    return ["    @staticmethod", "    def scalars():", f"        return {{{pairs}}}", ""]


def _method(name: str, signature: str, body: Body) -> str:
    return f"    @staticmethod\n    def {name}({signature}):\n{body.indented(8)}\n\n"


def _list(group: str, items: Sequence[str]) -> str:
    line = f"{group} = [{', '.join(items)}]\n"
    if len(line) <= 100:
        return line
    return f"{group} = [\n" + "".join(f"    {item},\n" for item in items) + "]\n"
