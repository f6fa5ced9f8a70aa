"""PatternMatchPass: applies pattern groups to a graph and keeps every site's story."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
from torch._inductor.pattern_matcher import Match, PatternMatcherPass

from fusionkit.capture.sources import module_path, source_line
from fusionkit.passes.admission import refuse_replacement
from fusionkit.passes.hits import SiteMatch
from fusionkit.passes.registering import PatternClass, argument_names, register_pattern
from fusionkit.passes.tracing import make_tracer


@dataclass(slots=True)
class _Log:
    """The matches of the graph that is being worked on."""

    graph_index: int = 0
    operands: dict[str, list[str]] = field(default_factory=dict)
    pattern: str = ""
    matches: list[SiteMatch] = field(default_factory=list)


class PatternMatchPass:
    """The pattern groups of one backend instance, in the order in which they are tried.

    One torch PatternMatcherPass per group, so that what a group takes is gone before the next one looks.
    """

    def __init__(
        self,
        groups: Mapping[str, Sequence[PatternClass]],
        decompositions: Mapping[Any, Any],
        device: str = "cpu",
        *,
        rewrite: bool = True,
    ) -> None:
        self._trace = make_tracer(dict(decompositions))
        self._rewrite = rewrite
        self._log = _Log()
        self._passes: dict[str, PatternMatcherPass] = {}
        for name, group in groups.items():
            matcher = PatternMatcherPass(pass_name=f"fusionkit_{name}")
            for pattern in group:
                register_pattern(pattern, matcher, self._trace, self._admit, device)
            self._passes[name] = matcher

    @property
    def names(self) -> tuple[str, ...]:
        """The groups' names in order."""
        return tuple(self._passes)

    def entries(self, name: str) -> int:
        """How many entries of torch's matcher the group `name` has; 0 means that it can never match."""
        return (
            sum(len(found) for found in self._passes[name].patterns.values()) if name in self._passes else 0
        )

    def apply(self, module: torch.fx.GraphModule, graph_index: int = 0) -> tuple[SiteMatch, ...]:
        """Rewrite `module` in place and return what happened at each matched site."""
        log = self._log = _Log(graph_index, {node.name: _operand_names(node) for node in module.graph.nodes})
        order = {node.name: index for index, node in enumerate(module.graph.nodes)}
        for name, matcher in self._passes.items():
            log.pattern = name
            matcher.apply(module)
        if any(match.status == "hit" for match in log.matches):
            let_views_copy(module)
            module.graph.lint()
            module.recompile()
        return tuple(sorted(log.matches, key=lambda match: order[match.anchor]))

    def _admit(self, pattern: PatternClass, match: Match) -> bool:
        """The extra check of each entry: is the replacement allowed here? Every answer is kept."""
        root = match.output_node()
        refusal = refuse_replacement(pattern, match)
        self._log.matches.append(
            SiteMatch(
                pattern=self._log.pattern,
                variant=pattern.name(),
                graph_index=self._log.graph_index,
                status="hit" if refusal is None else "skipped" if refusal.documented else "refused",
                reason=None if refusal is None else refusal.reason,
                anchor=root.name,
                module=module_path(root),
                source=source_line(root),
                nodes=tuple(node.name for node in match.nodes),
                modules=tuple(dict.fromkeys(module_path(node) for node in match.nodes)),
                arguments=literal_arguments(match, argument_names(pattern), self._log.operands),
            )
        )
        return refusal is None and self._rewrite


def literal_arguments(match: Match, names: list[str], operands: Mapping[str, list[str]]) -> dict[str, Any]:
    """Pattern argument -> {"node": name in the graph before any pattern}, or the literal that stands there.

    An operand may by now be the output of another replacement; `operands` (matched node -> its operands'
    names at the start) leads back to the node that stood in its place.
    """
    before = {
        now: old
        for node in match.nodes
        if node.name in operands
        for now, old in zip(_operand_names(node), operands[node.name], strict=True)
    }
    bound: dict[str, Any] = {}
    for name in names:
        value = match.kwargs.get(name)
        bound[name] = (
            {"node": before.get(value.name, value.name)} if isinstance(value, torch.fx.Node) else value
        )
    return bound


def _operand_names(node: torch.fx.Node) -> list[str]:
    """Names of the nodes that `node` is called with, in order, repetitions kept."""
    names: list[str] = []
    torch.fx.map_arg((node.args, node.kwargs), lambda operand: names.append(operand.name))
    return names


def let_views_copy(module: torch.fx.GraphModule) -> None:
    """Turn every view into a reshape, as Inductor does before it generates code.

    A fused op gives back contiguous memory where the chain it replaces kept its input's strides; a view that
    was legal before may now have to copy. That copy is real: it shows in the graph and in the profile.
    """
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
        node.target = torch.ops.aten.reshape.default
