"""Dims and sizes of a written pattern as expressions of the inputs that are right at every site."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
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


@dataclass(frozen=True, slots=True)
class Sizes:
    """The shapes of the arguments: name -> one shape for each site."""

    inputs: Sequence[tuple[str, Sequence[Sequence[Any]]]]


def write_dim(values: Sequence[Any], place: Place) -> str:
    """A dim: the literal, or counted from the end if the sites' ranks differ."""
    ranks = [len(shape) for shape in place.shapes]
    if _same(values, [values[0]] * len(values)) and (len(set(ranks)) == 1 or values[0] < 0):
        return repr(values[0])
    below = [rank - value for rank, value in zip(ranks, values, strict=True)]
    if len(set(below)) == 1:
        return f"{place.operand}.dim() - {below[0]}"
    if _same(values, [values[0]] * len(values)):
        return repr(values[0])
    raise UnexplainedError(place.node, place.argument, values)


def write_size(values: Sequence[Any], place: Place, sizes: Sizes) -> str:
    """A size: the simplest expression that is right at every site; a constant if there is none."""
    constant = _same(values, [values[0]] * len(values)) and type(values[0]) is int
    leading = place.position == 0 and values[0] == 1
    if constant and not leading and (values[0] in (-1, 0, 1) or values[0] >= _OPEN_END):
        return repr(values[0])
    ordered = _expressions(place, sizes, plain=bool(constant and values[0] in (1, 2)))
    for text, made in ordered:
        if text is None:
            return repr(values[0])
        if len(made) == len(values) and _same(values, made):
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
    parts = [own[place.dim]] if place.dim is not None and -rank <= place.dim < rank else []
    for text, made in parts:
        yield from ((f"{text} // {factor}", _whole(made, factor, divide=True)) for factor in _FACTORS)
    others = [item for name, shapes in sizes.inputs for item in _dims_of(name, shapes)]
    yield from own
    yield from others
    near = own[-1:]
    near += [dims[-1] for name, shapes in sizes.inputs if (dims := _dims_of(name, shapes))]
    for (text, made), factor in itertools.product(near, _FACTORS):
        yield f"{text} // {factor}", _whole(made, factor, divide=True)
        yield f"{text} * {factor}", _whole(made, factor, divide=False)
    yield from _pairs(own + others)


def _pairs(dims: Sequence[tuple[str, list[Any]]]) -> Iterator[tuple[str, list[Any]]]:
    for (a, left), (b, right) in itertools.permutations(dims, 2):
        yield f"{a} * {b}", _each(left, right, lambda x, y: x * y)
        yield f"{a} // {b}", _each(left, right, lambda x, y: x // y if y and x % y == 0 else None)


def _dims_of(name: str, shapes: Sequence[Sequence[Any]]) -> list[tuple[str, list[Any]]]:
    rank = min(len(shape) for shape in shapes)
    if any(len(shape) != rank for shape in shapes):
        return []
    return [(f"{name}.shape[{index}]", [shape[index] for shape in shapes]) for index in range(rank)]


def _whole(values: Sequence[Any], factor: int, *, divide: bool) -> list[Any]:
    if not divide:
        return [value * factor for value in values]
    return [value // factor if type(value) is int and value % factor == 0 else None for value in values]


def _each(left: Sequence[Any], right: Sequence[Any], join: Callable[[Any, Any], Any]) -> list[Any]:
    if not all(type(value) is int for value in (*left, *right)):
        return []
    return [join(a, b) for a, b in zip(left, right, strict=True)]


def _same(values: Sequence[Any], made: Sequence[Any]) -> bool:
    """Whether the values are equal at every site; symbolic sizes compare by expression."""
    return all(str(a) == str(b) for a, b in zip(values, made, strict=True))
