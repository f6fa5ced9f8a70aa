"""The lint rule of duplicates: two variants of one group whose patterns are one pattern for torch's matcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree

from fusionkit.errors import FusionKitError
from fusionkit.passes.lint_tracing import example_arguments, line_of, raw_scalars, trace_of
from fusionkit.passes.registering import PatternClass, name_of
from fusionkit.pattern_files.lint_rules import Finding, finding

# One call of a traced function: its target, and its arguments with nodes by number and pattern arguments by rank.
Form = tuple[Any, ...]


def lint_duplicates(patterns: Sequence[PatternClass]) -> list[Finding]:
    """Findings for the variants of one group that equal an earlier one, which takes all their sites.

    Equal are traces of the same calls in the same order, whatever the arguments are named and in whatever order
    they are taken. An error where the replacements differ, else a warning.
    Variants on inputs of other dtypes, with equal replacements, are the ordinary product of a factory and are
    not told. A variant that cannot be traced is another rule's matter.
    """
    first: dict[Form, tuple[PatternClass, Form, Form]] = {}
    found = []
    for pattern in patterns:
        try:
            searched, replaced, dtypes = _forms(pattern)
        except FusionKitError:
            continue
        if searched not in first:
            first[searched] = pattern, replaced, dtypes
            continue
        earlier, other, inputs = first[searched]
        item = _told(pattern, earlier, replaced == other)
        if replaced != other or dtypes == inputs:
            found.append(item)
    return found


def _told(pattern: PatternClass, earlier: PatternClass, same: bool) -> Finding:
    what = f"{name_of(pattern)}: pattern() equals that of {name_of(earlier)}"
    line = line_of(pattern.pattern)
    if same:
        return finding("duplicate", line, f"{what}, and so does replacement()", severity="warning")
    return finding("duplicate", line, f"{what}, but replacement() differs and is never used")


def _forms(pattern: PatternClass) -> tuple[Form, Form, Form]:
    """The forms of search and replacement function, and the dtypes of the inputs."""
    arguments = example_arguments(pattern, raw_scalars(pattern))
    rank: dict[str, int] = {}
    searched = _form(trace_of(pattern, "pattern", arguments), arguments, rank)
    replaced = _form(trace_of(pattern, "replacement", arguments), arguments, rank)
    tensors = (arguments[name] for name in rank if isinstance(arguments[name], torch.Tensor))
    return searched, replaced, tuple(tensor.dtype for tensor in tensors)


def _form(graph: torch.fx.Graph, arguments: Mapping[str, Any], rank: dict[str, int]) -> Form:
    """The calls and outputs of a trace, comparable; `rank` numbers the arguments by first use and is added to."""
    names = dict(zip(graph.find_nodes(op="placeholder"), arguments, strict=False))
    scalars = {value: name for name, value in arguments.items() if not isinstance(value, torch.Tensor)}
    numbers: dict[torch.fx.Node, int] = {}

    def leaf(value: Any) -> Any:
        if isinstance(value, torch.fx.Node) and value in numbers:
            return "node", numbers[value]
        name = names.get(value) if isinstance(value, torch.fx.Node) else _stand_in(value, scalars)
        if name is None:
            return type(value).__name__, str(value)
        return "argument", rank.setdefault(name, len(rank))

    rows = []
    for node in graph.nodes:
        if node.op == "placeholder":
            continue
        leaves, tree = pytree.tree_flatten((node.args, node.kwargs))
        rows.append((node.op, str(node.target), tuple(leaf(value) for value in leaves), str(tree)))
        numbers[node] = len(numbers)
    return tuple(rows)


def _stand_in(value: Any, scalars: Mapping[Any, str]) -> str | None:
    return scalars.get(value) if isinstance(value, float) else None
