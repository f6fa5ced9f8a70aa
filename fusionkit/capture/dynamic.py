"""Dimensions marked dynamic: which stay symbolic in the graph, and which source line specialised the others."""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo
import torch.fx
from torch._guards import TracingContext
from torch.utils import _pytree
from torch.utils._traceback import shorten_filename

from fusionkit.capture.aot import CompiledFunction, CompilerFunction
from fusionkit.capture.graphs import CapturedGraph
from fusionkit.capture.sources import source_line
from fusionkit.errors import MisuseError
from fusionkit.subjects.build import Subject
from fusionkit.subjects.source_paths import short_path

_MARKS = ("_dynamo_weak_dynamic_indices", "_has_dynamo_dim_marking")


@dataclass(frozen=True, slots=True)
class MarkedDim:
    """One dimension of one input tensor; `sources`: the expressions that dynamo may use for the tensor."""

    name: str
    dim: int
    size: int
    tensor: torch.Tensor
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DynamicDim:
    """Outcome of a marked dimension: `symbol` if it stays symbolic, else `source`, the line that specialised it."""

    name: str
    dim: int
    size: int
    symbol: str | None
    source: str = ""

    def describe(self, graphs: Sequence[CapturedGraph]) -> str:
        """One line of text, with the graph's ops that come from the specialising source line."""
        place = f"{self.name} dim {self.dim}"
        if self.symbol is not None:
            return f"{place} stays symbolic ({self.symbol})"
        if self.size < 2:
            return f"{place} is specialised: torch takes a size of {self.size} as a constant"
        if not self.source:
            return f"{place} is specialised to {self.size}; the compiler recorded no line for it"
        text, _, rest = self.source.partition("  # ")
        line = _whole_line(rest.partition(" in ")[0]) if rest else "an unknown line"
        ops = dict.fromkeys(
            str(node.target)
            for graph in graphs
            for node in graph.nodes
            if isinstance(node.target, torch._ops.OpOverload) and source_line(node) == line
        )
        by = f" by {', '.join(list(ops)[:4])}" if ops else ""
        return f"{place} is specialised to {self.size} at {line}{by}: {text}"


def find_dims(subject: Subject, wanted: Sequence[str]) -> list[MarkedDim]:
    """The dimensions that `INPUT:DIM` (one tensor) or `DIM` (every input tensor with that dimension) names.

    Raises MisuseError for an input or dimension that the subject does not have.
    """
    tensors = _tensors(subject)
    marked_dims: dict[tuple[str, int], MarkedDim] = {}
    for word in wanted:
        name, _, number = word.rpartition(":")
        if not re.fullmatch(r"-?[0-9]+", number):
            raise MisuseError(f"--dynamic {word}: give INPUT:DIM or DIM, such as hidden_states:1")
        if name and name not in tensors:
            raise MisuseError(f"--dynamic {word}: no input tensor '{name}'; there are {', '.join(tensors)}")
        chosen = {name: tensors[name]} if name else tensors
        fitting = [key for key, (tensor, _) in chosen.items() if -tensor.dim() <= int(number) < tensor.dim()]
        if not fitting:
            raise MisuseError(f"--dynamic {word}: no input has a dimension {number}")
        for key in fitting:
            tensor, sources = tensors[key]
            dim = int(number) % tensor.dim()
            marked_dims[key, dim] = MarkedDim(key, dim, int(tensor.shape[dim]), tensor, sources)
    return list(marked_dims.values())


@contextlib.contextmanager
def marked(dims: Sequence[MarkedDim]) -> Iterator[None]:
    """Mark the dimensions for the compiler inside the block: dynamic where the graph allows it."""
    kept = [
        (item.tensor, {name: copy.copy(value) for name, value in vars(item.tensor).items() if name in _MARKS})
        for item in dims
    ]
    try:
        for item in dims:
            torch._dynamo.maybe_mark_dynamic(item.tensor, item.dim)
        yield
    finally:
        for tensor, marks in kept:
            for name in _MARKS:
                vars(tensor).pop(name, None)
            vars(tensor).update(marks)


class DimWatch:
    """Wraps a backend and reads the outcome of the marked dimensions from the shape environment of each compile."""

    def __init__(self, dims: Sequence[MarkedDim]) -> None:
        self._dims = dims
        self._seen: dict[tuple[str, int], DynamicDim] = {}

    def watching(self, backend: CompilerFunction) -> CompilerFunction:
        """`backend`, with the outcome read after each graph that it compiles."""

        def watched(module: torch.fx.GraphModule, inputs: list[Any]) -> CompiledFunction:
            compiled = backend(module, inputs)
            context = TracingContext.try_get()
            mode = None if context is None else context.fake_mode
            if mode is not None and mode.shape_env is not None:
                for item in self._dims:
                    if seen := _what_became(item, mode.shape_env):
                        self._seen[item.name, item.dim] = seen
            return compiled

        return watched

    def result(self) -> tuple[DynamicDim, ...]:
        """One entry for each marked dimension; `symbol` is None for one that dynamo never made dynamic."""
        return tuple(
            self._seen.get((item.name, item.dim)) or DynamicDim(item.name, item.dim, item.size, None)
            for item in self._dims
        )


def _what_became(item: MarkedDim, environment: Any) -> DynamicDim | None:
    ends = tuple(f"{source}.size()[{item.dim}]" for source in item.sources)
    for name, symbol in environment.source_to_var.items():
        if not str(name).endswith(ends):
            continue
        value = environment.replacements.get(symbol, symbol)
        if value.free_symbols:
            return DynamicDim(item.name, item.dim, item.size, str(value))
        where = str(environment.replacements_slocs.get(symbol, ""))
        return DynamicDim(item.name, item.dim, item.size, None, where)
    return None


def _tensors(subject: Subject) -> dict[str, tuple[torch.Tensor, tuple[str, ...]]]:
    """Input tensors by name (`hidden_states`, `x[0]`), each with the source expressions that dynamo may use for it."""
    tensors: dict[str, tuple[torch.Tensor, tuple[str, ...]]] = {}
    for path, leaf in _pytree.tree_flatten_with_path(subject.kwargs)[0]:
        if isinstance(leaf, torch.Tensor):
            source = str(_pytree.keystr(path))
            first, _, rest = source.removeprefix("['").partition("']")
            tensors[first + rest] = (leaf, (source,))
    names = list(inspect.signature(subject.model.forward).parameters)
    for index, argument in enumerate(subject.args):
        if isinstance(argument, torch.Tensor):
            name = names[index] if index < len(names) else str(index)
            tensors[name] = (argument, (f"['{name}']", f"['args'][{index}]"))
    return tensors


def _whole_line(line: str) -> str:
    """`file:line` as `source_line` gives it; dynamo strips the prefix that a path shares with torch's own."""
    name, _, number = line.rpartition(":")
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    meant = (file for file in files if isinstance(file, str) and shorten_filename(file) == name)
    return f"{short_path(next(meant, name))}:{number}"
