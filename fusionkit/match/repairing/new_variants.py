"""The text of a repaired pattern file: the old text, one subclass for each form, and the changed groups."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from fusionkit.capture.sources import module_path
from fusionkit.errors import MisuseError
from fusionkit.match.repairing.fits import Fit
from fusionkit.match.repairing.old_variants import OldVariant
from fusionkit.match.repairing.region import Region, Slot
from fusionkit.match.repairing.writing import write_body
from fusionkit.match.repairing.writing_entries import write_entry
from fusionkit.passes.registering import name_of
from fusionkit.passes.tracing import TraceFunction

STAND_INS = (0.0113377, 0.0227179, 0.0341551, 0.0457327)
"""Numbers that occur nowhere else in a trace, by which the tracer recognises a scalar argument."""


@dataclass(frozen=True, slots=True)
class NewVariant:
    """A repaired variant: the old one, the regions that it was written from, and its text.

    `cls`: "" for a graph entry, which is no class; `name` is then its handler's.
    """

    old: OldVariant
    fit: Fit
    regions: tuple[Region, ...]
    cls: str
    name: str
    edits: tuple[str, ...]
    text: str


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
    bodies = {"pattern": write_body(regions, old.tensors, fit.scalars)}
    lifted = [name for name in fit.values if name in old.written]
    free = [value for value in STAND_INS if value not in old.scalars.values()]
    scalars = dict(old.scalars) | dict(zip(lifted, free, strict=False))
    names = [*old.tensors, *old.scalars, *lifted] if lifted else old.names
    values = fit.values
    signature = ", ".join(f"{name}={values[name]!r}" if name in values else name for name in names)
    if fit.taken is not None:
        bound = fit.taken.bound
        bodies["replacement"] = bound.text(
            old.tensors, None if bound.eps is None else fit.scalars.get(bound.eps)
        )
    elif old.rewritten or lifted:
        traced, places = old.trace_replacement(regions[0], trace)
        chosen = {slot: name for slot, name in places.items() if name in fit.values}
        bodies["replacement"] = write_body([traced], old.tensors, chosen)
    where = module_path(regions[0].outputs[0]) or regions[0].outputs[0].name
    origin = f"{len(regions)} sites, the first at {where}" if len(regions) > 1 else f"the site at {where}"
    comments = "".join(f"    # {edit}\n" for edit in edits) + ("\n" if edits else "")
    head = f'class {cls}({old.group}[{old.index}]):\n    """Written from the graph: {origin}."""\n\n'
    examples = [example_of(value) for value in regions[0].input_values]
    methods = methods_text(f'"{name}"', examples, scalars if lifted else {}, signature, bodies)
    return NewVariant(old, fit, tuple(regions), cls, name, tuple(edits), head + comments + methods)


def write_entry_variant(
    fit: Fit, regions: Sequence[Region], old: OldVariant, number: int, edits: Sequence[str]
) -> NewVariant:
    """A graph entry with the old replacement, for a form with sizes that no input explains.

    Raises MisuseError if the old replacement's arguments would have to change.
    """
    if fit.taken is not None or old.rewritten or any(name in old.written for name in fit.values):
        raise MisuseError(
            f"pattern {name_of(old.pattern)}: sizes vary and its arguments change; write it anew by hand"
        )
    places: dict[str, int | Slot] = {name: index for index, name in enumerate(old.tensors)}
    places |= {name: slot for slot, name in fit.scalars.items() if name not in places}
    name = f"{_fusion_name(old.group)}_repaired_{number}"
    text = write_entry(
        regions,
        [places[item] for item in old.names],
        name=name,
        docstring=f"Written from the graph: {len(regions)} sites whose sizes vary.",
        replacement=f"_{_stem(old.group)}{number}.replacement",
    )
    alias = f"_{_stem(old.group)}{number} = {old.group}[{old.index}]\n\n\n"
    comments = "".join(f"# {edit}\n" for edit in edits)
    return NewVariant(old, fit, tuple(regions), "", name, tuple(edits), alias + comments + text)


def write_file(
    text: str, kept: Mapping[str, Sequence[int]], added: Sequence[NewVariant], subject: str, name: str | None
) -> str:
    """The old text, the new classes, and each changed group: `kept` old variants by index, then the new ones.

    `name`: of the fusion, for the register function; None: that of the group.
    """
    parts = [text.rstrip() + "\n"]
    parts.append(f"\n\n# Repaired for {subject}: the variants below are written from its graph.\n")
    if not re.search(r"^import torch$", text, re.MULTILINE):
        parts.append("import torch  # noqa: E402\n")
    parts += [f"\n\n{variant.text}" for variant in added]
    entries = [variant for variant in added if not variant.cls]
    if entries:
        parts.append(_register_function(text, entries, name or _fusion_name(entries[0].old.group)))
    lists = []
    for group in dict.fromkeys([*kept, *(variant.old.group for variant in added)]):
        items = [f"{group}[{index}]" for index in kept.get(group, ())]
        items += [variant.cls for variant in added if variant.old.group == group and variant.cls]
        lists.append(_list(group, items))
    return "".join(parts) + "\n\n" + "\n".join(lists)


def _register_function(text: str, entries: Sequence[NewVariant], name: str) -> str:
    """The one function that registers the file's graph entries: its own, and the new ones."""
    function = f"register_{name}_graph_entries"
    own = re.search(rf"^def {function}\b", text, re.MULTILINE) is not None
    before = f"\n\n_own_entries = {function}\n" if own else ""
    calls = ["_own_entries"] if own else []
    calls += [f"_register_{variant.name}" for variant in entries]
    body = "".join(f"    {call}(pattern_pass)\n" for call in calls)
    return f'{before}\n\ndef {function}(pattern_pass):\n    """Every graph entry of this file."""\n{body}'


def example_of(value: torch.Tensor, dtype: torch.dtype | None = None) -> str:
    """The expression of an example tensor of this shape and dtype; `dtype`: the one to write as variable `dtype`."""
    shape = [int(size) if not isinstance(size, torch.SymInt) else 2 for size in value.shape]
    own = "dtype" if value.dtype == dtype else value.dtype
    return f'torch.empty({shape}, dtype={own}, device="meta")'


def _fusion_name(group: str) -> str:
    """`RmsNormPatternGroup` -> `rms_norm`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", _stem(group).removesuffix("Pattern")).lower()


def _stem(group: str) -> str:
    return group.removesuffix("Group").strip("_")


def methods_text(
    name: str,
    examples: Sequence[str],
    stand_ins: Mapping[str, float],
    signature: str,
    bodies: Mapping[str, str],
) -> str:
    """The static methods of a pattern class; scalars() only if there are `stand_ins`.

    `name` and `examples`: expressions of the name and of each example input. `bodies`: name of a function of
    `signature` -> its statements.
    """
    values = {"name": name, "inputs": "\n".join(["[", *(f"    {example}," for example in examples), "]"])}
    if stand_ins:
        values["scalars"] = "{" + ", ".join(f'"{key}": {value}' for key, value in stand_ins.items()) + "}"
    methods = [(f"{method}()", f"return {value}") for method, value in values.items()]
    methods += [(f"{method}({signature})", body) for method, body in bodies.items()]
    return "\n".join(
        f"    @staticmethod\n    def {head}:\n{textwrap.indent(body, ' ' * 8)}\n" for head, body in methods
    )


def _list(group: str, items: Sequence[str]) -> str:
    line = f"{group} = [{', '.join(items)}]\n"
    if len(line) <= 100:
        return line
    return f"{group} = [\n" + "".join(f"    {item},\n" for item in items) + "]\n"
