"""Prefix isolation: counting the matches of ever longer prefixes of a pattern in the real graph.

A prefix is the pattern's own function, stopped after one op. torch traces it again at every site, as it does with
the whole pattern, so sizes and dims stay right. It returns the last op's result and every value that the rest of the
pattern uses: torch's matcher allows users outside the pattern for outputs only.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.fx
from torch._inductor.pattern_matcher import Match, PatternMatcherPass
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from fusionkit.capture.aot import decomposition_table
from fusionkit.capture.foreign import keep_composites
from fusionkit.capture.graphs import Capture, CapturedGraph, copy_graph_module
from fusionkit.capture.sources import source_line
from fusionkit.config import select_patterns
from fusionkit.encoding import Result
from fusionkit.errors import MisuseError
from fusionkit.match.explanation.rows import call_text
from fusionkit.match.explanation.variants import Variant
from fusionkit.match.matching import device_of
from fusionkit.match.ops import operands, packet
from fusionkit.passes.registering import (
    PatternClass,
    UnmatchableError,
    example_inputs,
    fake_like,
    register_pattern,
)
from fusionkit.passes.registry import enabled_groups
from fusionkit.passes.tracing import TraceFunction, make_tracer
from fusionkit.passes.trial import trial_groups

SCHEMA = "fusionkit.isolate/1"


@dataclass(frozen=True, slots=True)
class Level:
    """One prefix: the pattern up to and including `node`, with its number of matches in the graphs."""

    node: str
    call: str
    source: str
    nodes: int
    hits: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Isolation(Result):
    """The levels of one variant, in the order in which its ops are called.

    `sites`: the expected number of hits, None without a site count. `falls_at`: the first level with fewer hits than
    that (than one without a site count); None if there is none.
    """

    variant: str
    levels: tuple[Level, ...]
    sites: int | None

    @property
    def falls_at(self) -> Level | None:
        """The first level that loses hits."""
        wanted = self.sites or 1
        return next((level for level in self.levels if level.hits < wanted), None)

    def to_dict(self) -> dict[str, Any]:
        """The isolate JSON."""
        fall = self.falls_at
        return Result.to_dict(self) | {"falls_at": None if fall is None else fall.node}


def isolate(
    graphs: Sequence[CapturedGraph],
    variant: Variant,
    trace: TraceFunction,
    device: str,
    sites: int | None = None,
) -> Isolation:
    """Count the hits of every prefix of a variant, shortest first, in copies of `graphs`."""
    levels = []
    called = _called(variant)
    for position, node in enumerate(called):
        inside = _cone(node)
        used = [i for i, one in enumerate(called) if one in inside and not inside.issuperset(one.users)]
        scalars = _scalars(inside, variant)
        places = zip(variant.arguments, variant.placeholders, strict=True)
        names = [name for name, place in places if place in inside or name in scalars]
        prefix = _prefix(variant, [position, *(p for p in used if p != position)], names)
        note, hits = "", 0
        try:
            hits = _count(graphs, prefix, trace, device)
        except UnmatchableError as error:
            note = str(error)
        calls = sum(1 for item in inside if item.op == "call_function")
        levels.append(Level(node.name, call_text(node), source_line(node), calls, hits, note))
    return Isolation(variant.name, tuple(levels), sites)


def _called(variant: Variant) -> list[torch.fx.Node]:
    """The calls that pass the dispatcher, in order: all but getitem."""
    return [node for node in variant.calls if packet(node) != "operator.getitem"]


def _scalars(inside: set[torch.fx.Node], variant: Variant) -> set[str]:
    """The scalar arguments whose stand-ins are arguments of these nodes."""
    values = [value for node in inside for value in operands(node).values() if isinstance(value, int | float)]
    return {name for name, stand_in in variant.scalars.items() if stand_in in values}


def _cone(node: torch.fx.Node) -> set[torch.fx.Node]:
    """The node and everything that it depends on."""
    cone, front = {node}, [node]
    while front:
        for operand in front.pop().all_input_nodes:
            if operand not in cone:
                cone.add(operand)
                front.append(operand)
    return cone


class _StoppedError(RuntimeError):
    """Ends a pattern's function after the wanted op."""


class _Stop(TorchDispatchMode):
    """Runs the ops up to position `last` among `kept`, the calls of the trace, then raises _StoppedError.

    An op at a position outside `needed` is not run, since its arguments may be examples whose sizes do not fit the
    site: it returns an empty tensor of the example's size.
    """

    def __init__(self, last: int, kept: Sequence[torch.fx.Node], needed: frozenset[int], device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._left = list(enumerate(kept[: last + 1]))
        self._needed = needed
        self._device = device
        self.values: list[Any] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kept = self._left[0] if self._left and func is self._left[0][1].target else None
        if kept is not None and kept[0] not in self._needed:
            result = tree_map(self._empty, kept[1].meta["val"])
        else:
            result = func(*args, **(kwargs or {}))
        if kept is not None:
            self._left.pop(0)
            self.values.append(result[0] if isinstance(result, tuple | list) else result)
            if not self._left:
                raise _StoppedError
        return result

    def _empty(self, value: Any) -> Any:
        return fake_like(value, self._device) if isinstance(value, torch.Tensor) else value


def _prefix(variant: Variant, positions: Sequence[int], names: Sequence[str]) -> PatternClass:
    """The variant cut after the op at the first of `positions`; it returns the results of all of them.

    `names`: the arguments that this prefix uses.
    """
    original = variant.pattern
    tensors = [name for name in variant.arguments if name not in variant.scalars]
    examples = dict(zip(tensors, example_inputs(original), strict=True))
    kept = _called(variant)
    inside = _cone(kept[positions[0]])
    needed = frozenset(index for index, node in enumerate(kept) if node in inside)

    def search(*given: Any) -> Any:
        device = next((str(item.device) for item in given if isinstance(item, torch.Tensor)), "cpu")
        others = {name: fake_like(tensor, device) for name, tensor in examples.items() if name not in names}
        values = {**others, **variant.scalars, **dict(zip(names, given, strict=True))}
        stopping = _Stop(positions[0], kept, needed, device)
        with stopping as stop, contextlib.suppress(_StoppedError):
            original.pattern(*(values[name] for name in variant.arguments))
        return [stop.values[position] for position in positions]

    function = _with_arguments(search, names)

    class Prefix(original):  # type: ignore[misc, valid-type]
        name = staticmethod(lambda: f"{variant.name}[:{positions[0] + 1}]")
        inputs = staticmethod(lambda: [examples[name] for name in names if name in examples])
        scalars = staticmethod(lambda: {k: v for k, v in variant.scalars.items() if k in names})
        pattern = staticmethod(function)
        replacement = staticmethod(function)

    return Prefix


def _with_arguments(function: Any, names: Sequence[str]) -> Any:
    """The function with named arguments, as the matcher reads them from the signature."""

    def named(*given: Any) -> Any:
        return function(*given)

    named.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    )
    return named


def _count(graphs: Sequence[CapturedGraph], pattern: PatternClass, trace: TraceFunction, device: str) -> int:
    matches: list[Match] = []

    def keep(_: PatternClass, match: Match) -> bool:
        matches.append(match)
        return False

    matcher = PatternMatcherPass(pass_name="fusionkit_isolate")
    register_pattern(pattern, matcher, trace, keep, device)
    for graph in graphs:
        matcher.apply(copy_graph_module(graph.module))
    return len(matches)


@dataclass(frozen=True, slots=True)
class IsolationReport(Result, schema=SCHEMA):
    """The isolation of every variant of a pattern, the one with the longest matching prefix first."""

    pattern: str
    window: str
    variants: tuple[Isolation, ...]


def isolate_capture(
    capture: Capture, pattern: str | Path, *, window: str = "before-freezing"
) -> IsolationReport:
    """Isolate every variant of a kit pattern, or of a pattern file's classes, in the graphs of one window.

    Raises MisuseError for a file without pattern classes, or a window without graphs.
    """
    graphs = capture.in_window(window)
    if not graphs:
        raise MisuseError(f"subject {capture.subject}: no graph was captured in window {window}")
    path = Path(pattern) if str(pattern).endswith(".py") else None
    groups = trial_groups(path) if path is not None else enabled_groups(select_patterns((str(pattern),)))
    keep_composites(node for graph in capture.graphs for node in graph.nodes)
    trace = make_tracer(decomposition_table(capture.decompositions), sources=True)
    device = device_of(graphs)
    sites = {name: count.expected for name, count in capture.counts.items()}
    isolations = [
        isolate(graphs, Variant(item, trace, device), trace, device, sites.get(name))
        for name, group in groups.items()
        for item in group
    ]
    isolations.sort(key=lambda item: (item.falls_at is not None, -_reached(item)))
    return IsolationReport(str(pattern), window, tuple(isolations))


def _reached(item: Isolation) -> int:
    """The number of levels before hits are lost."""
    return len(item.levels) if item.falls_at is None else item.levels.index(item.falls_at)
