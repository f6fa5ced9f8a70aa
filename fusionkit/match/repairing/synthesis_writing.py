"""The text of a synthesized pattern file: a factory class for each form, and one group."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fusionkit.capture.sources import module_path, source_line
from fusionkit.match.ops import operands
from fusionkit.match.repairing.new_variants import STAND_INS, example_of, methods_text
from fusionkit.match.repairing.region import Region, Slot
from fusionkit.match.repairing.synthesis_ops import TakenOp
from fusionkit.match.repairing.writing import free_name, parts_to_write, write_body
from fusionkit.pattern_files.naming import FusionNames

_TEMPLATE = '''class {cls}:
    """{docstring}"""

    @staticmethod
    def create(dtype):
        """Variant for a first argument of `dtype`."""

        class Pattern(PatternBase):
{methods}
        return Pattern
'''


@dataclass(frozen=True, slots=True)
class WrittenForm:
    """One class of the file: its regions, the fused op of its replacement, and its text."""

    cls: str
    regions: tuple[Region, ...]
    taken: TakenOp | None
    dtype: torch.dtype
    text: str


def write_forms(
    regions: Sequence[Region], names: FusionNames, number: int, taken: TakenOp | None
) -> list[WrittenForm]:
    """The class for one form, the `number`-th of its file; one for each value of a size that no input explains."""
    arguments = argument_names_for(regions[0])
    scalars = _scalars_of(regions)
    parts = parts_to_write(regions, arguments, scalars)
    return [_write_form(part, scalars, names, number + index, taken) for index, part in enumerate(parts)]


def _write_form(
    regions: Sequence[Region],
    scalars: dict[Slot, str],
    names: FusionNames,
    number: int,
    taken: TakenOp | None,
) -> WrittenForm:
    stem, first = names.pattern_class.removesuffix("Pattern"), regions[0]
    cls = f"{stem}{number if number > 1 else ''}Pattern"
    arguments = argument_names_for(first)
    body = write_body(regions, arguments, scalars)
    replacement = f"# TODO: put the fused op here; until then this repeats the search part.\n{body}"
    if taken is not None:
        bound = taken.bound
        replacement = bound.text(arguments, None if bound.eps is None else scalars.get(bound.eps))
    dtype = first.input_values[0].dtype
    defaults = [f"{name}={first.argument(slot)!r}" for slot, name in scalars.items()]
    where = module_path(first.outputs[0]) or "the model"
    methods = methods_text(
        f'f"{cls}_{{dtype}}".replace("torch.", "")',
        [example_of(value, dtype) for value in first.input_values],
        dict(zip(scalars.values(), STAND_INS, strict=False)),
        ", ".join([*arguments, *defaults]),
        {"pattern": body, "replacement": replacement},
    )
    text = _TEMPLATE.format(
        cls=cls,
        docstring=f"{len(first.nodes)} nodes of {where} ({source_line(first.outputs[0]) or first.outputs[0].name}).",
        methods=textwrap.indent(methods, " " * 8),
    )
    return WrittenForm(cls, tuple(regions), taken, dtype, text)


def write_group(forms: Sequence[WrittenForm], names: FusionNames, subject: str) -> str:
    """The whole file."""
    title = names.name.replace("_", " ")
    classes = "\n\n".join(form.text for form in forms)
    items = "".join(f"    {form.cls}.create({form.dtype}),\n" for form in forms)
    return (
        f'"""{title}, written from the graph of {subject}: the search part is what stands there."""\n\n'
        "import torch\n\nfrom fusionkit.patterns import PatternBase\n\n\n"
        f"{classes}\n\n{names.group} = [\n{items}]\n"
    )


def argument_names_for(region: Region) -> list[str]:
    """`x` for the first tensor, `weight` for vectors, `other` for the rest; numbered from the second of a kind."""
    made: list[str] = []
    for value in region.input_values:
        stem = "x" if not made and value.dim() > 1 else "weight" if value.dim() == 1 else "other"
        made.append(free_name(stem, made))
    return made


def _scalars_of(regions: Sequence[Region]) -> dict[Slot, str]:
    """A scalar argument for each float literal that differs between the sites."""
    floats = [(index, label) for (index, label), value in regions[0].slots() if isinstance(value, float)]
    varying = [
        (index, label)
        for index, label in floats
        if len({operands(region.nodes[index]).get(label) for region in regions}) > 1
    ]
    scalars: dict[Slot, str] = {}
    for slot in varying[: len(STAND_INS)]:
        scalars[slot] = free_name("eps", scalars.values())
    return scalars
