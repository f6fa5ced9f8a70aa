"""A variant under repair: its traces, arguments, closure tensors and written numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.fx
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from fusionkit.errors import USER_CODE_ERRORS, MisuseError
from fusionkit.match.ops import operands
from fusionkit.match.repairing.region import Region, Slot
from fusionkit.match.repairing.region_numbers import region_function
from fusionkit.match.repairing.writing import free_name
from fusionkit.passes.registering import (
    PatternClass,
    argument_names,
    example_inputs,
    fake_like,
    name_of,
    scalars_of,
)
from fusionkit.passes.tracing import TraceFunction
from fusionkit.pattern_files.time_limit import within_limits


@dataclass(frozen=True, slots=True)
class OldVariant:
    """One variant of the pattern under repair.

    `names`: the arguments of a repaired variant, tensors and scalars, in order; `examples`: name -> example tensor;
    `graph`: the trace of the search function with one placeholder for each of `names`.
    `closure_tensors`: new argument name -> a tensor that the pattern itself holds. `dropped`: arguments that neither
    function uses. `written`: name -> a number in the code of both functions; it becomes a scalar argument if the
    model's graph has another value.
    """

    pattern: PatternClass
    group: str
    index: int
    names: tuple[str, ...]
    examples: Mapping[str, torch.Tensor]
    scalars: Mapping[str, float]
    graph: torch.fx.Graph
    closure_tensors: Mapping[str, torch.Tensor]
    dropped: Mapping[str, torch.Tensor]
    written: Mapping[str, float]

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of the tensor arguments."""
        return tuple(name for name in self.names if name not in self.scalars)

    @property
    def rewritten(self) -> bool:
        """Whether the arguments change, so that the replacement has to be rewritten."""
        return bool(self.closure_tensors or self.dropped)

    def replacement(self, scalars: Mapping[str, Any]) -> Callable[..., Any]:
        """The old replacement as a function of `tensors`, with these values of the scalars."""

        known = {**scalars, **self.dropped}
        return _lifting(self.pattern.replacement, argument_names(self.pattern), known, self.closure_tensors)

    def replacement_at(
        self, region: Region, scalars: Mapping[str, Any], trace: TraceFunction
    ) -> Callable[..., Any]:
        """The same, with the values of written numbers too: then its trace at the region's shapes."""
        if all(scalars[name] == value for name, value in self.written.items() if name in scalars):
            return self.replacement(scalars)
        whole, places = self.trace_replacement(region, trace)
        given = {slot: scalars[name] for slot, name in places.items() if name in scalars}
        return region_function(_numbers_replaced(whole, given))

    def trace_search(self, tensors: Sequence[torch.Tensor], trace: TraceFunction) -> torch.fx.Graph:
        """The trace of the search function on these tensors; placeholders as in `graph`."""
        names = argument_names(self.pattern)
        search = _lifting(self.pattern.pattern, names, {**self.scalars, **self.dropped}, self.closure_tensors)
        return trace(search, tensors).graph

    def trace_replacement(self, region: Region, trace: TraceFunction) -> tuple[Region, dict[Slot, str]]:
        """The trace of the replacement at a region's shapes, as a region, with the places of its scalars."""
        values = region.input_values
        with detect_fake_mode(values) or FakeTensorMode(allow_non_fake_inputs=True):
            fresh = [fake_like(value, str(value.device)) for value in values]
            graph = _with_numbers(trace(self.replacement(self.scalars), fresh).graph)
        calls = tuple(node for node in graph.nodes if node.op == "call_function")
        outputs = graph.output_node().all_input_nodes
        whole = Region(tuple(graph.find_nodes(op="placeholder")), calls, tuple(outputs))
        by_value = {_single(value): name for name, value in {**self.scalars, **self.written}.items()}
        numbers = {slot: _single(value) for slot, value in whole.slots() if type(value) in (int, float)}
        return whole, {slot: by_value[value] for slot, value in numbers.items() if value in by_value}


def _numbers_replaced(region: Region, values: Mapping[Slot, Any]) -> Region:
    """The region with these numbers in its own nodes."""
    for (index, label), value in values.items():
        node = region.nodes[index]
        if label in node.kwargs:
            node.update_kwarg(label, value)
        else:
            node.update_arg([*operands(node)].index(label), value)
    return region


def _single(value: float) -> float:
    """The number rounded to float32: one of two traces may have it rounded, the other as written."""
    return float(np.float32(value))


def read_variant(
    pattern: PatternClass, group: str, index: int, trace: TraceFunction, device: str
) -> OldVariant:
    """Trace a variant, even one that cannot be registered. Raises MisuseError when it cannot be traced."""
    scalars = scalars_of(pattern)
    names = argument_names(pattern)
    wanted = [name for name in names if name not in scalars]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        tensors = (fake_like(tensor, device) for tensor in example_inputs(pattern))
        examples = dict(zip(wanted, tensors, strict=True))
        try:
            with within_limits(f"pattern {name_of(pattern)}: tracing it"):
                own = _find_closure_tensors(pattern, [(examples | scalars)[name] for name in names])
                closure_tensors = dict(zip(_free_names(names, own), own, strict=True))
                given = examples | {name: mode.from_tensor(t) for name, t in closure_tensors.items()}
                graph, new = (
                    trace(_lifting(function, names, scalars, closure_tensors), [*given.values()]).graph
                    for function in (pattern.pattern, pattern.replacement)
                )
                new = _with_numbers(new)
        except USER_CODE_ERRORS as error:
            what = (str(error).splitlines() or ["?"])[0]
            raise MisuseError(
                f"pattern {name_of(pattern)}: cannot be traced ({what}); mend it first"
            ) from error
    dropped = _drop_unused(graph, new, given)
    kept = {name: tensor for name, tensor in given.items() if name not in dropped}
    order = (*kept, *scalars) if closure_tensors or dropped else tuple(names)
    written = _written_numbers(graph, new, [*names, *closure_tensors], scalars)
    return OldVariant(pattern, group, index, order, kept, scalars, graph, closure_tensors, dropped, written)


def _with_numbers(graph: torch.fx.Graph) -> torch.fx.Graph:
    """Add the float arguments that a trace omits because they are their op's default."""
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
        if schema is None:
            continue
        free = [a for a in schema.arguments if not a.kwarg_only][len(node.args) :]
        last = max((i for i, a in enumerate(free) if isinstance(a.default_value, float)), default=-1)
        if last >= 0 and not node.kwargs:
            node.args = (*node.args, *(a.default_value for a in free[: last + 1]))
    return graph


def _written_numbers(
    graph: torch.fx.Graph, new: torch.fx.Graph, names: Sequence[str], scalars: Mapping[str, float]
) -> dict[str, float]:
    """Non-integral numbers that both traces have and that are no stand-ins, under free names."""

    def fractions(trace: torch.fx.Graph) -> list[float]:
        values = [v for n in trace.nodes if n.op == "call_function" for v in operands(n).values()]
        floats = [v for v in values if isinstance(v, float) and v not in scalars.values()]
        return [v for v in floats if math.isfinite(v) and v != int(v)]

    other = {_single(value) for value in fractions(new)}
    shared = [value for value in dict.fromkeys(fractions(graph)) if _single(value) in other]
    return dict(zip(_free_names([*names, *scalars], shared, "eps"), shared, strict=True))


def _drop_unused(
    graph: torch.fx.Graph, new: torch.fx.Graph, given: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Remove the placeholders that neither trace uses from `graph`; returns their arguments."""
    dropped = {}
    places = (trace.find_nodes(op="placeholder") for trace in (graph, new))
    for (name, tensor), node, other in zip(given.items(), *places, strict=True):
        if not node.users and not other.users:
            graph.erase_node(node)
            dropped[name] = tensor
    return dropped


def _lifting(
    function: Callable[..., Any],
    names: Sequence[str],
    scalars: Mapping[str, Any],
    closure_tensors: Mapping[str, torch.Tensor],
) -> Callable[..., Any]:
    """A pattern's function of its tensors and closure tensors, with the scalars at their stand-ins."""
    wanted = [*(name for name in names if name not in scalars), *closure_tensors]

    def search(*tensors: torch.Tensor) -> Any:
        given = dict(zip(wanted, tensors, strict=True))
        with _Lifted({id(tensor): given[name] for name, tensor in closure_tensors.items()}):
            known = {**given, **scalars}
            return function(*(known[name] for name in names))

    return search


def _free_names(names: Sequence[str], wanted: Sequence[Any], stem: str = "weight") -> Iterator[str]:
    taken = set(names)
    for _ in wanted:
        taken.add(name := free_name(stem, taken))
        yield name


def _find_closure_tensors(pattern: PatternClass, arguments: Sequence[Any]) -> list[torch.Tensor]:
    """Real tensors that the search function uses and that are no arguments, in the order of their use."""
    with torch.no_grad(), _ClosureTensors(arguments) as collector:
        pattern.pattern(*arguments)
    tensors: list[torch.Tensor] = collector.tensors
    return tensors


class _ClosureTensors(TorchFunctionMode):
    """Collects the tensors that are neither arguments nor results of a call within the mode."""

    def __init__(self, given: Sequence[Any]) -> None:
        super().__init__()
        self.tensors: list[torch.Tensor] = []
        self._known: list[Any] = [*given]

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        tree_map(self._look, (args, kwargs or {}))
        made = func(*args, **(kwargs or {}))
        tree_map(self._known.append, made)
        return made

    def _look(self, value: Any) -> None:
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            return
        if value.device.type != "meta" and not any(value is known for known in (*self._known, *self.tensors)):
            self.tensors.append(value)


class _Lifted(TorchFunctionMode):
    """Replaces a pattern's closure tensors by arguments."""

    def __init__(self, places: Mapping[int, Any]) -> None:
        super().__init__()
        self._places = places

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, named = tree_map(lambda value: self._places.get(id(value), value), (args, kwargs or {}))
        return func(*args, **named)
