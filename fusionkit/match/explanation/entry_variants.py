"""An entry of a pattern file as a variant: its expression tree becomes a graph, so that misses can be explained.

Ignored() parts of the tree match any value; a part with `_users=MULTIPLE` may have further users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch._guards import detect_fake_mode
from torch._inductor.pattern_matcher import (
    Arg,
    CallFunction,
    Ignored,
    KeywordArg,
    ListOf,
    Match,
    MultiOutputPattern,
    PatternEntry,
    PatternExpr,
    PatternMatcherPass,
)

from fusionkit.errors import MisuseError
from fusionkit.match.explanation.calls import ANYTHING
from fusionkit.match.explanation.variants import Answer, Variant, checked_answer
from fusionkit.passes.admission import Refusal, refuse_entry
from fusionkit.passes.graph_entries import FileGroup, entry_name, register_entries, registered
from fusionkit.passes.registering import fake_like
from fusionkit.passes.tracing import unlogged_retraces


class EntryVariant(Variant):
    """One entry of a file's register_..._graph_entries.

    Matching has one stage, except for the entries of torch's register_replacement, which retraces at the site's shapes.
    """

    def __init__(self, entry: PatternEntry) -> None:
        self.name = entry_name(entry)
        self.scalars = {}
        self.unmatchable = None
        self.raised = None
        self._refusal = None
        self._checked = False
        self._entry = entry
        self.graph = graph_of(entry.pattern, self.name)
        self.arguments = tuple(node.name for node in self.graph.nodes if node.op == "placeholder")
        self._registered = registered(entry)
        for node in self.graph.nodes:
            node.meta["any_keywords"] = not self._registered  # a handler reads them itself

    def retrace(self, bindings: Mapping[torch.fx.Node, Any]) -> dict[torch.fx.Node, torch.fx.Node] | None:
        """Nodes of `graph` -> nodes of the search function's trace at the site.

        A hand-written tree has no such function: each node is mapped to itself.
        """
        if not self._registered:
            return {node: node for node in self.graph.nodes}
        bound = {place.target: value for place, value in bindings.items()}
        nodes = [bound.get(name) for name in self._registered["argnames_static"]]
        values = [node.meta.get("val") if isinstance(node, torch.fx.Node) else node for node in nodes]
        mode = detect_fake_mode(values)
        if mode is None or any(value is None for value in values):
            return None
        search, trace = self._registered["search_fn"], self._registered["trace_fn"]
        with mode, unlogged_retraces():
            fresh = [fake_like(v, str(v.device)) if isinstance(v, torch.Tensor) else v for v in values]
            again = trace(search, fresh, get_decomp_fn=self._registered.get("get_decomp_fn")).graph
        pairs: dict[torch.fx.Node, torch.fx.Node] = {}
        _pair(self.graph.output_node(), again.output_node(), pairs)
        return pairs

    def replaces_like(self, other: Variant) -> bool:
        """Whether `other` is this variant: handlers are not compared."""
        return self is other

    def _judge(self, match: Match) -> Answer:
        assert self._entry is not None
        refusal = refuse_entry(match, bool(self._registered))
        if refusal is None and not self._entry.extra_check(match):
            if self._registered and self._registered["extra_check"](match):
                return Answer("literals", "a literal differs at the site's own shapes", match)
            refusal = Refusal("extra_check of the entry says no")
        return checked_answer(match, refusal)


def entry_variants(group: Sequence[Any]) -> list[Variant]:
    """The hand-written entries of a group; none for a plain list of classes."""
    variants: list[Variant] = []
    for register in group.entries if isinstance(group, FileGroup) else ():
        scratch = PatternMatcherPass(pass_name="fusionkit_explain")
        register_entries(register, scratch, lambda _, match, allowed, __: bool(allowed(match)))
        unique = {id(entry): entry for entries in scratch.patterns.values() for entry in entries}
        variants += [EntryVariant(entry) for entry in unique.values()]
    return variants


def _pair(ours: torch.fx.Node, theirs: torch.fx.Node, pairs: dict[torch.fx.Node, torch.fx.Node]) -> None:
    """Pair two graphs of one function from their ends upwards."""
    if pairs.setdefault(ours, theirs) is theirs:
        for operands in zip(ours.all_input_nodes, theirs.all_input_nodes, strict=False):
            _pair(*operands, pairs)


def graph_of(expression: PatternExpr, name: str) -> torch.fx.Graph:
    """The tree as a graph: a call for each CallFunction, a placeholder for each Arg.

    Raises MisuseError for any other kind of expression.
    """
    graph = torch.fx.Graph()
    made: dict[int, Any] = {}
    outputs = expression.outputs if isinstance(expression, MultiOutputPattern) else [expression]
    graph.output(tuple(_node(graph, part, made, name) for part in outputs if part is not None))
    return graph


def _node(graph: torch.fx.Graph, part: Any, made: dict[int, Any], name: str) -> Any:
    if isinstance(part, list | tuple):
        return [_node(graph, item, made, name) for item in part]
    if not isinstance(part, PatternExpr):
        return part
    if isinstance(part, Ignored):
        return ANYTHING
    if id(part) in made:
        return made[id(part)]
    if isinstance(part, KeywordArg):
        node = made.get(part.name) or graph.placeholder(part.name)  # type: ignore[call-overload]
        made[part.name] = node  # type: ignore[index]
    elif isinstance(part, Arg | ListOf):
        node = graph.placeholder(f"arg{sum(1 for n in graph.nodes if n.op == 'placeholder')}")
    elif isinstance(part, CallFunction):
        args = tuple(_node(graph, item, made, name) for item in part.args)
        kwargs = {key: _node(graph, item, made, name) for key, item in part.kwargs.items()}
        target: Any = part.fns[0]
        node = graph.call_function(target, args, kwargs)
        node.meta["many_users"] = part.has_multiple_users()
    else:
        raise MisuseError(
            f"entry {name}: {type(part).__name__} in its tree cannot be explained; use CallFunction, Arg and Ignored"
        )
    made[id(part)] = node
    return node
