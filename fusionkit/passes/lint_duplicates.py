"""The lint rule `duplicate`: two variants of one group with equal patterns, of which torch's matcher uses the first."""

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

# A comparable form of a trace: each call's target and arguments, nodes as numbers, pattern arguments by first use.
Form = tuple[Any, ...]


def lint_duplicates(patterns: Sequence[PatternClass]) -> list[Finding]:
    """Findings for the variants of one group whose pattern equals an earlier one, which takes all their sites.

    Traces are equal if they make the same calls in the same order; names and order of the arguments do not matter.
    The finding is an error if the replacements differ, else a warning. There is none for equal replacements on
    inputs of other dtypes, which a factory makes on purpose. Variants that cannot be traced are skipped: another
    rule reports them.
    """
    first: dict[Form, tuple[PatternClass, Form, Form]] = {}
    findings = []
    for pattern in patterns:
        try:
            searched, replaced, dtypes = _forms(pattern)
        except FusionKitError:
            continue
        if searched not in first:
            first[searched] = pattern, replaced, dtypes
            continue
        earlier, other, inputs = first[searched]
        item = _duplicate(pattern, earlier, replaced == other)
        if replaced != other or dtypes == inputs:
            findings.append(item)
    return findings


def _duplicate(pattern: PatternClass, earlier: PatternClass, same: bool) -> Finding:
    what = f"{name_of(pattern)}: pattern() equals that of {name_of(earlier)}"
    line = line_of(pattern.pattern)
    if same:
        return finding("duplicate", line, f"{what}, and so does replacement()", severity="warning")
    return finding("duplicate", line, f"{what}, but replacement() differs and is never used")


def _forms(pattern: PatternClass) -> tuple[Form, Form, Form]:
    """The forms of pattern and replacement, and the dtypes of the inputs."""
    arguments = example_arguments(pattern, raw_scalars(pattern))
    rank: dict[str, int] = {}
    searched = _form(trace_of(pattern, "pattern", arguments), arguments, rank)
    replaced = _form(trace_of(pattern, "replacement", arguments), arguments, rank)
    tensors = (arguments[name] for name in rank if isinstance(arguments[name], torch.Tensor))
    return searched, replaced, tuple(tensor.dtype for tensor in tensors)


def _form(graph: torch.fx.Graph, arguments: Mapping[str, Any], rank: dict[str, int]) -> Form:
    """The calls and outputs of a trace in comparable form; `rank` numbers the arguments by first use, and grows."""
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
