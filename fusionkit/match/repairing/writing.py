"""Source of a pattern's body for one or several regions of one form: straight-line aten calls."""

from __future__ import annotations

import itertools
import keyword
import math
import operator
from collections.abc import Container, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from fusionkit.errors import MisuseError
from fusionkit.match.explanation.literal_differences import DIMS
from fusionkit.match.ops import operands, packet
from fusionkit.match.repairing.region import Region, Slot, is_number
from fusionkit.match.repairing.writing_sizes import Place, UnexplainedError, write_dim, write_size

Node = torch.fx.Node
_SIZES = (
    "size",
    "shape",
    "split_size",
    "split_sizes",
    "repeats",
    "start",
    "end",
    "normalized_shape",
    "length",
)
_WIDTH = 92
_MOST_PARTS = 6  # number of variants for one form with a size that no input explains


def write_body(
    regions: Sequence[Region], names: Sequence[str], scalars: Mapping[Slot, str] | None = None
) -> str:
    """The body of a function of `names` (one for each input) that computes what the regions compute, not indented.

    The regions have one form and one node order (as from `regions_like`). Literals are those of the graph; a dim is
    computed from the rank if the sites' ranks differ; a size is computed from the inputs if the expression is right
    at every site. `scalars`: number -> the parameter to write there. Raises UnexplainedError for
    a number that differs between the sites and that no input explains.
    """
    return _Writer(regions, names, scalars or {}).write()


def parts_to_write(
    regions: Sequence[Region], names: Sequence[str], scalars: Mapping[Slot, str] | None = None
) -> list[list[Region]]:
    """The regions in parts that can each be written, split by the value of a size that no input explains.

    Raises UnexplainedError for more than _MOST_PARTS parts.
    """
    pending, done = [list(regions)] if regions else [], list[list[Region]]()
    while pending:
        part = pending.pop(0)
        try:
            write_body(part, names, scalars)
            done.append(part)
        except UnexplainedError as error:
            by_value: dict[str, list[Region]] = {}
            for region in part:
                by_value.setdefault(error.value_in(region.nodes, part[0].nodes), []).append(region)
            if len(by_value) < 2 or len(by_value) + len(done) + len(pending) > _MOST_PARTS:
                raise
            pending += by_value.values()
    return done


class _Writer:
    def __init__(self, regions: Sequence[Region], names: Sequence[str], scalars: Mapping[Slot, str]) -> None:
        self.regions = regions
        self.names = list(names)
        self.scalars = scalars
        first = regions[0]
        self.local: dict[Node, str] = dict(zip(first.inputs, names, strict=True))
        shapes = [[value.shape for value in region.input_values] for region in regions]
        self.sizes = list(zip(names, zip(*shapes, strict=True), strict=True))

    def write(self) -> str:
        lines: list[str] = []
        for index, node in enumerate(self.regions[0].nodes):
            call = self.call(index, node)
            self.local[node] = self.fresh(node)
            lines += _wrapped(f"{self.local[node]} = ", *call)
        outputs = [self.local[node] for node in self.regions[0].outputs]
        return "\n".join([*lines, f"return {', '.join(outputs)}"])

    def fresh(self, node: Node) -> str:
        """A local name from the op's own, numbered if it is in use."""
        stem = packet(node).rpartition(".")[2].strip("_")
        if keyword.iskeyword(stem) or not stem.isidentifier():
            stem = "value"
        return free_name(stem, {*self.local.values(), *self.names, *self.scalars.values(), "torch"})

    def call(self, index: int, node: Node) -> tuple[str, list[str], str]:
        """The call's head, arguments and tail."""
        nodes = [region.nodes[index] for region in self.regions]
        schema = getattr(node.target, "_schema", None)
        arguments = []
        for position in range(len(node.args)):
            label = schema.arguments[position].name if schema is not None else str(position)
            arguments.append(self.argument(index, nodes, label, [n.args[position] for n in nodes]))
        for key in node.kwargs:
            arguments.append(f"{key}={self.argument(index, nodes, key, [n.kwargs[key] for n in nodes])}")
        if node.target is operator.getitem:
            return f"{arguments[0]}[{arguments[1]}]", [], ""
        if not isinstance(node.target, torch._ops.OpOverload):
            raise MisuseError(
                f"node '{node.name}' calls {node.target}, which a pattern cannot hold; leave it out"
            )
        return f"torch.ops.{node.target}(", arguments, ")"

    def argument(self, index: int, nodes: list[Node], label: str, values: list[Any]) -> str:
        if (index, label) in self.scalars:
            return self.scalars[index, label]
        return self.literal(nodes, label, values, None)

    def literal(self, nodes: list[Node], label: str, values: list[Any], position: int | None) -> str:
        first = values[0]
        if isinstance(first, Node) and not is_number(first):
            return self.local[first]
        if isinstance(first, list | tuple):
            columns = [[value[i] for value in values] for i in range(len(first))]
            inner = [self.literal(nodes, label, column, i) for i, column in enumerate(columns)]
            return f"[{', '.join(inner)}]"
        if isinstance(first, torch.dtype):
            return self.dtype(first)
        if isinstance(first, torch.device):
            return self.device(values)
        if isinstance(first, bool | str | None | torch.layout | torch.memory_format):
            return repr(first)
        return self.number(nodes, label, values, position)

    def number(self, nodes: list[Node], label: str, values: list[Any], position: int | None) -> str:
        """An int, a float or a symbolic size."""
        numbers = [value.meta["val"] if isinstance(value, Node) else value for value in values]
        place = self.place(nodes, label, position)
        alike = all(type(n) is type(numbers[0]) and str(n) == str(numbers[0]) for n in numbers)
        if label in DIMS and place is not None:
            return write_dim(numbers, place)
        if place is not None and not isinstance(numbers[0], float) and (label in _SIZES or not alike):
            return write_size(numbers, place, self.sizes)
        if not alike:
            raise UnexplainedError(nodes[0].name, label, numbers)
        if isinstance(numbers[0], float) and not math.isfinite(numbers[0]):
            return f'float("{numbers[0]}")'
        return repr(numbers[0])

    def place(self, nodes: list[Node], label: str, position: int | None) -> Place | None:
        """The place of a number: its op, and the shapes of the op's first tensor operand at every site."""
        operand = next((arg for arg in nodes[0].all_input_nodes if not is_number(arg)), None)
        if operand is None or not isinstance(operand.meta.get("val"), torch.Tensor):
            return None
        which = list(nodes[0].all_input_nodes).index(operand)
        shapes = [node.all_input_nodes[which].meta["val"].shape for node in nodes]
        dim = None if "dim" in nodes[0].kwargs else operands(nodes[0]).get("dim")
        own = dim if isinstance(dim, int) else None
        return Place(nodes[0].name, label, self.local[operand], shapes, position, own)

    def dtype(self, dtype: torch.dtype) -> str:
        """`x.dtype` of the first input x of this dtype; float32 as it is, since forms cast to it from any dtype."""
        for name, node in zip(self.names, self.regions[0].inputs, strict=True):
            if dtype is not torch.float32 and self.regions[0].value(node).dtype == dtype:
                return f"{name}.dtype"
        return repr(dtype)

    def device(self, values: list[Any]) -> str:
        """The first input's device if it is equal to the literal at every site."""
        inputs = [region.value(region.inputs[0]).device for region in self.regions if region.inputs]
        if len(inputs) == len(values) and all(a == b for a, b in zip(inputs, values, strict=True)):
            return f"{self.names[0]}.device"
        return f"torch.device({str(values[0])!r})"


def free_name(stem: str, taken: Container[str]) -> str:
    """The stem if it is free, else the stem with the first free number from 2 on."""
    names = itertools.chain([stem], (f"{stem}_{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


def _wrapped(start: str, head: str, arguments: list[str], tail: str) -> list[str]:
    """One statement, with one argument per line if it is long."""
    line = f"{start}{head}{', '.join(arguments)}{tail}"
    if len(line) <= _WIDTH or not arguments:
        return [line]
    return [f"{start}{head}", *(f"    {argument}," for argument in arguments), tail]
