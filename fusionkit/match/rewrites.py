"""Rewrites between two captures: ops that only one side has at a source statement, grouped over equal cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fusionkit.capture.graphs import CapturedGraph
from fusionkit.capture.node_records import target_name
from fusionkit.capture.sources import module_path, source_line, source_text
from fusionkit.encoding import Result

Ops = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Rewrite(Result):
    """Ops that only A has and ops that only B has at each of `places`, sorted by name, with their numbers.

    `modules`: module paths of the places in graph order; `sources`: source lines of the ops.
    """

    a: Ops
    b: Ops
    places: int
    modules: tuple[str, ...]
    sources: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; the ops as {op: count}."""
        return Result.to_dict(self) | {"a": dict(self.a), "b": dict(self.b)}


@dataclass(slots=True)
class _Place:
    """The ops of one source statement in one module."""

    ops: Counter[str]
    sources: dict[str, None]


_Places = dict[str, dict[str, _Place]]  # module -> statement -> ops
_Difference = tuple[Counter[str], Counter[str], list[str]]  # only in A, only in B, sources


def find_rewrites(a: Sequence[CapturedGraph], b: Sequence[CapturedGraph]) -> tuple[Rewrite, ...]:
    """The rewrites between two lists of graphs, the most frequent first.

    A statement is identified by its text, because its line number moves between versions of a library. If a module
    runs another branch on the other side, all its one-sided statements together are one rewrite.
    """
    grouped: dict[tuple[Ops, Ops], list[tuple[str, list[str]]]] = {}
    left, right = _places(a), _places(b)
    for module in dict.fromkeys([*left, *right]):
        for only_a, only_b, sources in _differences(left.get(module, {}), right.get(module, {})):
            grouped.setdefault((_sorted(only_a), _sorted(only_b)), []).append((module, sources))
    rewrites = [
        Rewrite(
            *ops,
            places=len(where),
            modules=tuple(dict.fromkeys(module for module, _ in where)),
            sources=tuple(dict.fromkeys(source for _, sources in where for source in sources)),
        )
        for ops, where in grouped.items()
    ]
    return tuple(sorted(rewrites, key=lambda rewrite: -rewrite.places))


def _differences(a: dict[str, _Place], b: dict[str, _Place]) -> Iterator[_Difference]:
    """The differences of one module: one for each statement, or one for all one-sided statements of two branches."""
    nothing = _Place(Counter(), {})
    one_sided: list[_Difference] = []
    for text in dict.fromkeys([*a, *b]):
        here, there = a.get(text, nothing), b.get(text, nothing)
        only_a, only_b = here.ops - there.ops, there.ops - here.ops
        difference = only_a, only_b, list(here.sources | there.sources)
        if only_a and only_b:
            yield difference
        elif only_a or only_b:
            one_sided.append(difference)
    if any(only_a for only_a, _, _ in one_sided) and any(only_b for _, only_b, _ in one_sided):
        all_a = sum((only_a for only_a, _, _ in one_sided), Counter[str]())
        all_b = sum((only_b for _, only_b, _ in one_sided), Counter[str]())
        if all_a != all_b:  # else the same ops under another statement
            yield all_a - all_b, all_b - all_a, [source for _, _, lines in one_sided for source in lines]
    else:
        yield from one_sided


def _places(graphs: Sequence[CapturedGraph]) -> _Places:
    places: _Places = {}
    for graph in graphs:
        for node in graph.nodes:
            if node.op != "call_function":
                continue
            source = source_line(node)
            statements = places.setdefault(module_path(node), {})
            place = statements.setdefault(source_text(node) or source, _Place(Counter(), {}))
            place.ops[target_name(node.target)] += 1
            place.sources |= {source: None} if source else {}
    return places


def _sorted(ops: Counter[str]) -> Ops:
    return tuple(sorted(ops.items()))
