"""The lint rules that need a pattern's trace: unused arguments, equal stand-ins, rounded literals, closure tensors."""

from __future__ import annotations

import inspect
import linecache
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode

from fusionkit.errors import FusionKitError, MisuseError
from fusionkit.npu.target import current_device
from fusionkit.passes.keywords import wildcards
from fusionkit.passes.registering import (
    PatternClass,
    argument_names,
    bind_arguments,
    example_inputs,
    fake_like,
    name_of,
    raw_scalars,
)
from fusionkit.passes.tracing import make_tracer, require_searchable, unlogged_retraces
from fusionkit.pattern_files.lint_rules import Finding, finding
from fusionkit.pattern_files.time_limit import TimeLimitError, own_code


def lint_trace(pattern: PatternClass) -> list[Finding]:
    """The findings of all rules of this module for one pattern class, traced on its own example inputs.

    Raises MisuseError (a FusionKitError) when the pattern cannot be run or traced.
    """
    scalars = raw_scalars(pattern)
    line = line_of(pattern.pattern)
    arguments = example_arguments(pattern, scalars)
    broken = _not_searchable(pattern, arguments, line)
    if broken is not None:
        return [broken]
    graph = trace_of(pattern, "pattern", arguments)
    return [
        *_unused(pattern, graph, scalars, line),
        *_equal_scalars(pattern, scalars),
        *_own_tensors(pattern, graph, line),
        *_rounded_literals(pattern, graph, scalars),
        *_wildcards(pattern, graph),
    ]


def line_of(function: Callable[..., Any]) -> int:
    """The line of a function's `def` (or lambda), 0 if it has none."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return 0
    first = int(code.co_firstlineno)
    for line, text in enumerate(linecache.getlines(code.co_filename)[first - 1 :], first):
        if "def " in text or "lambda" in text:
            return line
    return first


def example_arguments(pattern: PatternClass, scalars: Mapping[str, Any]) -> dict[str, Any]:
    """Argument -> fake tensor on the target's device, or stand-in, in order.

    Raises MisuseError when inputs() and the arguments disagree.
    """
    with FakeTensorMode(allow_non_fake_inputs=True):
        tensors = [fake_like(tensor, current_device()) for tensor in example_inputs(pattern, scalars)]
    return bind_arguments(pattern, tensors, scalars)


def _mode_of(arguments: Mapping[str, Any]) -> FakeTensorMode:
    return detect_fake_mode(list(arguments.values())) or FakeTensorMode(allow_non_fake_inputs=True)


def _not_searchable(pattern: PatternClass, arguments: Mapping[str, Any], line: int) -> Finding | None:
    name = name_of(pattern)
    try:
        with own_code(f"pattern {name}: pattern()"), unlogged_retraces(), _mode_of(arguments):
            require_searchable(name, pattern.pattern, arguments)
    except FusionKitError as error:
        message = str(error).partition(": ")[2]
        if "in place" in message:
            return finding("mutating_search", line, f"{name}: {message.partition(':')[0]}")
        if "matches nothing" in message:
            return finding("returns_nothing", line, f"{name}: {message.partition(',')[0]}")
        raise
    return None


def trace_of(pattern: PatternClass, method: str, arguments: Mapping[str, Any]) -> torch.fx.Graph:
    """The trace of the pattern's `method` on `arguments`, without decompositions, each node with its source line.

    Raises MisuseError when the method raises or does not end.
    """
    trace = make_tracer({}, sources=True)
    with own_code(f"pattern {name_of(pattern)}: tracing it"), unlogged_retraces(), _mode_of(arguments):
        return trace(getattr(pattern, method), list(arguments.values())).graph


def _unused(
    pattern: PatternClass, graph: torch.fx.Graph, scalars: Mapping[str, Any], line: int
) -> Iterator[Finding]:
    placeholders = list(graph.find_nodes(op="placeholder"))
    for name, node in zip(argument_names(pattern), placeholders, strict=False):
        used = _literals(graph)[scalars[name]] if name in scalars else len(node.users)
        if not used:
            yield finding(
                "unused_argument", line, f"{name_of(pattern)}: argument '{name}' is not in the trace"
            )


def _equal_scalars(pattern: PatternClass, scalars: Mapping[str, Any]) -> Iterator[Finding]:
    """Equal stand-ins, and stand-ins whose value stays in the trace when the argument gets another value."""
    if not scalars:
        return
    line = line_of(pattern.scalars)
    values = list(scalars.values())
    doubled = {value for value in values if values.count(value) > 1}
    for value in doubled:
        both = ", ".join(name for name, other in scalars.items() if other == value)
        yield finding("equal_scalars", line, f"{name_of(pattern)}: {both} have one stand-in, {value}")
    for name, value in scalars.items():
        elsewhere = None if value in doubled else _trace_without(pattern, scalars, name)
        if elsewhere is not None and _literals(elsewhere)[value]:
            yield finding(
                "equal_scalars",
                line,
                f"{name_of(pattern)}: stand-in {value} of {name} is a literal of the trace too",
            )


def _trace_without(pattern: PatternClass, scalars: Mapping[str, Any], name: str) -> torch.fx.Graph | None:
    """The trace with another value for one scalar, of the same type; None if none of those tried can be traced.

    A size or a slice bound may fit the example inputs with few values or with one.
    """
    for other in _other_values(scalars[name]):
        try:
            return trace_of(pattern, "pattern", example_arguments(pattern, {**scalars, name: other}))
        except TimeLimitError:
            raise
        except MisuseError:
            continue
    return None


def _other_values(value: float) -> tuple[float, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return value + 1, value - 1, 2 * value
    return value * 1.0009765625 + 3.0, value * 1.0009765625


def _literals(graph: torch.fx.Graph) -> Counter[Any]:
    """Count of every number in the arguments of the graph's calls; True counts as 1, as in torch's matcher."""
    calls = [node for node in graph.nodes if node.op == "call_function"]  # a placeholder holds its default
    leaves = [leaf for node in calls for leaf in pytree.tree_leaves((node.args, node.kwargs))]
    return Counter(leaf for leaf in leaves if isinstance(leaf, bool | int | float))


def _own_tensors(pattern: PatternClass, graph: torch.fx.Graph, line: int) -> Iterator[Finding]:
    for node in graph.find_nodes(op="get_attr"):
        place = min((_line(user) for user in node.users if _line(user)), default=line)
        yield finding(
            "closure_tensor", place, f"{name_of(pattern)}: {node.target} is a tensor of the pattern's own"
        )


def _rounded_literals(
    pattern: PatternClass, graph: torch.fx.Graph, scalars: Mapping[str, Any]
) -> Iterator[Finding]:
    """Literals that a model's graph has in rounded form, and literals that over- or underflow in their tensor's dtype.

    Ops such as add.Scalar come from C++ decompositions, which round the number to the op's arithmetic dtype (float32
    for half precisions); Python's operators give add.Tensor with the number as written.
    """
    for node in graph.nodes:
        dtype = _floating_dtype(node)
        if dtype is None or not isinstance(node.target, torch._ops.OpOverload):
            continue
        arithmetic = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
        for value in node.args:
            if not isinstance(value, float) or not math.isfinite(value) or value in scalars.values():
                continue
            rounded = float(torch.tensor(value, dtype=arithmetic))
            stored = float(torch.tensor(value, dtype=dtype))
            what = None
            if node.target._overloadname == "Scalar" and rounded != value:
                what = f"{node.target} holds {value!r} as {rounded!r}"
            elif value and (stored == 0 or math.isinf(stored)):
                what = f"{value!r} is {stored!r} in {str(dtype).removeprefix('torch.')}"
            if what is not None:
                way_out = f"write {rounded!r}" if math.isfinite(rounded) and rounded else None
                yield finding("unrepresentable_literal", _line(node), f"{name_of(pattern)}: {what}", way_out)


def _wildcards(pattern: PatternClass, graph: torch.fx.Graph) -> Iterator[Finding]:
    """Keywords that the pattern's calls omit and torch's matcher ignores; a check of the class's own may read them."""
    if callable(getattr(pattern, "extra_check", None)):
        return
    for node in graph.nodes:
        for name in wildcards(node):
            what = f"{name_of(pattern)}: {node.target} without {name}"
            yield finding("omitted_keyword", _line(node), what)


def _floating_dtype(node: torch.fx.Node) -> torch.dtype | None:
    values = [operand.meta.get("val") for operand in node.all_input_nodes]
    dtypes = [v.dtype for v in values if isinstance(v, torch.Tensor) and v.dtype.is_floating_point]
    return dtypes[0] if dtypes else None


def _line(node: torch.fx.Node) -> int:
    """The pattern's source line of a node, 0 if the trace has none."""
    lines = re.findall(r", line (\d+)", node.meta.get("stack_trace") or "")
    return int(lines[-1]) if lines else 0
