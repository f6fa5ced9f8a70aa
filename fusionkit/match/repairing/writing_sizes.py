"""Dims and sizes of a written pattern as expressions of the inputs that are right at every site."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch.fx

from fusionkit.errors import MisuseError
from fusionkit.match.ops import operands

_OPEN_END = 2**62
_FACTORS = (2, 3, 4, 6)


class UnexplainedError(MisuseError):
    """A number differs between the sites of one form, and no input explains it."""

    def __init__(self, node: str, argument: str, values: Sequence[Any]) -> None:
        texts = ", ".join(dict.fromkeys(str(value) for value in values))
        super().__init__(
            f"node '{node}': {argument} differs between the sites ({texts}) and no input explains it;"
            " write one pattern per value, or a graph entry that ignores it"
        )
        self.node = node
        self.argument = argument

    def value_in(self, nodes: Sequence[torch.fx.Node], template: Sequence[torch.fx.Node]) -> str:
        """The number in another region of the form; `template`: the nodes of the region that the error is about."""
        index = next(i for i, node in enumerate(template) if node.name == self.node)
        return str(operands(nodes[index]).get(self.argument))


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a number: node, op argument, the first operand's name and shapes (one for each site).

    `position`: index within a list argument. `dim`: the op's own dim argument, if any.
    """

    node: str
    argument: str
    operand: str
    shapes: Sequence[Sequence[Any]]
    position: int | None
    dim: int | None


Sizes = Sequence[tuple[str, Sequence[Sequence[Any]]]]  # name of an argument, its shape at each site


def write_dim(values: Sequence[Any], place: Place) -> str:
    """A dim: the literal, or counted from the end if the sites' ranks differ."""
    ranks = [len(shape) for shape in place.shapes]
    below = {rank - value for rank, value in zip(ranks, values, strict=True)}
    constant = len(set(map(str, values))) == 1
    if len(below) == 1 and not (constant and (len(set(ranks)) == 1 or values[0] < 0)):
        return f"{place.operand}.dim() - {below.pop()}"
    if constant:
        return repr(values[0])
    raise UnexplainedError(place.node, place.argument, values)


def write_size(values: Sequence[Any], place: Place, sizes: Sizes) -> str:
    """A size: the simplest expression that is right at every site; a constant if there is none."""
    constant = type(values[0]) is int and len(set(map(str, values))) == 1
    leading = place.position == 0 and values[0] == 1
    if constant and not leading and (values[0] in (-1, 0, 1) or values[0] >= _OPEN_END):
        return repr(values[0])
    ordered = _expressions(place, sizes, plain=bool(constant and values[0] in (1, 2)))
    for text, made in ordered:
        if text is None:
            return repr(values[0])
        if list(map(str, made)) == list(map(str, values)):  # symbolic sizes compare by expression
            return text
    if constant:
        return repr(values[0])
    raise UnexplainedError(place.node, place.argument, values)


def _expressions(place: Place, sizes: Sizes, *, plain: bool) -> Iterator[tuple[str | None, list[Any]]]:
    """Candidate expressions with their values at each site; (None, []) means to prefer the constant to the rest."""
    own = _dims_of(place.operand, place.shapes)
    rank = len(own)
    if place.argument == "normalized_shape" and own:
        yield own[-1]
    if place.position is not None and place.position < rank:
        yield own[place.position]
    if plain:
        yield None, []
    if place.dim is not None and -rank <= place.dim < rank:
        text, made = own[place.dim]
        yield from ((f"{text} // {factor}", _quotients(made, factor)) for factor in _FACTORS)
    inputs = [_dims_of(name, shapes) for name, shapes in sizes]
    others = [*own, *itertools.chain(*inputs)]
    yield from others
    near = [dims[-1] for dims in (own, *inputs) if dims]
    for (text, made), factor in itertools.product(near, _FACTORS):
        yield f"{text} // {factor}", _quotients(made, factor)
        yield f"{text} * {factor}", [value * factor for value in made]
    for (a, left), (b, right) in itertools.permutations(others, 2):
        if all(type(value) is int for value in (*left, *right)):
            yield f"{a} * {b}", [x * y for x, y in zip(left, right, strict=True)]
            both = zip(left, right, strict=True)
            yield f"{a} // {b}", [x // y if y and x % y == 0 else None for x, y in both]


def _dims_of(name: str, shapes: Sequence[Sequence[Any]]) -> list[tuple[str, list[Any]]]:
    rank = min(len(shape) for shape in shapes)
    if any(len(shape) != rank for shape in shapes):
        return []
    return [(f"{name}.shape[{index}]", [shape[index] for shape in shapes]) for index in range(rank)]


def _quotients(values: Sequence[Any], factor: int) -> list[Any]:
    return [value // factor if type(value) is int and value % factor == 0 else None for value in values]
