"""Keywords of a graph's calls that a pattern omits: torch's matcher takes any value for them."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, NamedTuple

import torch
import torch.fx
from torch._inductor.pattern_matcher import CallFunction, Match

# Keywords that set where and how a tensor is stored; they do not change its values.
STORAGE = frozenset({"pin_memory", "memory_format", "non_blocking"})
# Keywords that change nothing if the value is that of the call's own operand.
_OF_OPERAND = ("dtype", "device", "layout")


class OmittedKeyword(NamedTuple):
    """A keyword of a matched node that the pattern omits, and that changes the result."""

    node: torch.fx.Node
    name: str
    value: Any


def omitted_keywords(match: Match) -> Iterator[OmittedKeyword]:
    """Every keyword of the matched nodes that the pattern's calls omit although it changes the result."""
    for expression, node in match.ctx.pattern_to_node.items():
        if isinstance(expression, CallFunction) and isinstance(node, torch.fx.Node):
            for name, value in decisive_keywords(node, expression.kwargs).items():
                yield OmittedKeyword(node, name, value)


def decisive_keywords(node: torch.fx.Node, named: Container[str]) -> dict[str, Any]:
    """The keywords of a call that `named` lacks and that change the result: neither default nor the operand's own."""
    schema = getattr(node.target, "_schema", None)
    defaults = {a.name: a.default_value for a in schema.arguments} if schema is not None else {}
    decisive = {}
    for name, value in node.kwargs.items():
        if name in named or name in STORAGE:
            continue
        if name in defaults and not isinstance(value, torch.fx.Node) and defaults[name] == value:
            continue
        if name in _OF_OPERAND and _is_of_operand(node, name, value):
            continue
        decisive[name] = value
    return decisive


def _is_of_operand(node: torch.fx.Node, name: str, value: Any) -> bool:
    first = next((operand.meta.get("val") for operand in node.all_input_nodes), None)
    return isinstance(first, torch.Tensor) and getattr(first, name) == value


def wildcards(node: torch.fx.Node) -> list[str]:
    """The keyword-only arguments that a pattern's call omits and that select another function.

    `alpha` counts between two tensors only: nobody writes it for an eps.
    """
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return []
    unread = {*STORAGE, *_OF_OPERAND, "generator", "out", *node.kwargs}
    if len(node.all_input_nodes) < 2:
        unread.add("alpha")
    return [a.name for a in schema.arguments if a.kwarg_only and a.name not in unread]
