"""The text of a synthesized pattern file: a factory class for each form, and one group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fusionkit.capture.sources import module_path, source_line
from fusionkit.match.ops import operands
from fusionkit.match.repairing.new_variants import STAND_INS
from fusionkit.match.repairing.region import Region
from fusionkit.match.repairing.synthesis_ops import TakenOp
from fusionkit.match.repairing.writing import Body, parts_to_write, write_body
from fusionkit.pattern_files.naming import FusionNames

_TEMPLATE = '''class {cls}:
    """{docstring}"""

    @staticmethod
    def create(dtype):
        """Variant for a first argument of `dtype`."""

        class Pattern(PatternBase):
            @staticmethod
            def name():
                return f"{cls}_{{dtype}}".replace("torch.", "")

            @staticmethod
            def inputs():
                return [
{inputs}
                ]

{scalars}            @staticmethod
            def pattern({signature}):
{body}

            @staticmethod
            def replacement({signature}):
{replacement}

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
    scalars: dict[tuple[int, str], str],
    names: FusionNames,
    number: int,
    taken: TakenOp | None,
) -> WrittenForm:
    stem = names.pattern_class.removesuffix("Pattern")
    cls = names.pattern_class if number == 1 else f"{stem}{number}Pattern"
    first = regions[0]
    arguments = argument_names_for(first)
    body = write_body(regions, arguments, scalars)
    dtype = first.value(first.inputs[0]).dtype
    defaults = {name: operands(first.nodes[i])[label] for (i, label), name in scalars.items()}
    signature = ", ".join([*arguments, *(f"{name}={value!r}" for name, value in defaults.items())])
    where = module_path(first.outputs[0]) or "the model"
    text = _TEMPLATE.format(
        cls=cls,
        docstring=f"{len(first.nodes)} nodes of {where} ({source_line(first.outputs[0]) or first.outputs[0].name}).",
        inputs="\n".join(" " * 20 + _example(first.value(node), dtype) for node in first.inputs),
        scalars=_scalars_method(scalars),
        signature=signature,
        body=body.indented(16),
        replacement=_replacement(body, arguments, scalars, taken),
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
    for node in region.inputs:
        value = region.value(node)
        stem = "x" if not made and value.dim() > 1 else "weight" if value.dim() == 1 else "other"
        name, number = stem, 1
        while name in made:
            number += 1
            name = f"{stem}_{number}"
        made.append(name)
    return made


def _scalars_of(regions: Sequence[Region]) -> dict[tuple[int, str], str]:
    """A scalar argument for each float literal that differs between the sites."""
    scalars: dict[tuple[int, str], str] = {}
    for index, node in enumerate(regions[0].nodes):
        for label, value in operands(node).items():
            others = (
                {operands(region.nodes[index]).get(label) for region in regions}
                if isinstance(value, float)
                else set()
            )
            if len(others) > 1 and len(scalars) < len(STAND_INS):
                scalars[index, label] = "eps" if not scalars else f"eps_{len(scalars) + 1}"
    return scalars


def _scalars_method(scalars: dict[tuple[int, str], str]) -> str:
    if not scalars:
        return ""
    pairs = ", ".join(f'"{name}": {value}' for name, value in zip(scalars.values(), STAND_INS, strict=False))
    return f"            @staticmethod\n            def scalars():\n                return {{{pairs}}}\n\n"


def _replacement(
    body: Body, arguments: Sequence[str], scalars: dict[tuple[int, str], str], taken: TakenOp | None
) -> str:
    if taken is None:
        todo = "# TODO: put the fused op here; until then this repeats the search part.\n"
        return " " * 16 + todo + body.indented(16)
    eps = None if taken.eps is None else scalars.get(taken.eps)
    return "\n".join(" " * 16 + line for line in taken.lines(arguments, eps))


def _example(value: torch.Tensor, first: torch.dtype) -> str:
    shape = [int(size) if not isinstance(size, torch.SymInt) else 2 for size in value.shape]
    dtype = "dtype" if value.dtype == first else repr(value.dtype)
    return f'torch.empty({shape}, dtype={dtype}, device="meta"),'
