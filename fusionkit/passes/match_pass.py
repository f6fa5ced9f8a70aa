"""PatternMatchPass: applies pattern groups to a graph and records every match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
from torch._inductor.pattern_matcher import Match, PatternMatcherPass

from fusionkit.capture.aot import decomposition_table
from fusionkit.capture.sources import module_path, source_line
from fusionkit.passes.admission import OWN_CHECK, Refusal, refuse_entry, refuse_replacement
from fusionkit.passes.graph_entries import Check, FileGroup, lint_graph, register_entries, watch_rewrites
from fusionkit.passes.registering import PatternClass, argument_names, entries_of, register_pattern
from fusionkit.passes.site_match import SiteMatch
from fusionkit.passes.tracing import make_tracer
from fusionkit.pattern_files.time_limit import own_code


@dataclass(slots=True)
class _Log:
    """State of the graph in work: original operand names, current group, matches, and the nodes that hits took.

    `inserted`: node of a replacement -> the match that it replaced.
    """

    graph_index: int = 0
    operands: dict[str, list[str]] = field(default_factory=dict)
    pattern: str = ""
    matches: list[SiteMatch] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    inserted: dict[torch.fx.Node, SiteMatch] = field(default_factory=dict)


class PatternMatchPass:
    """The pattern groups of one backend instance, in the order in which they are tried.

    Each group has its own torch PatternMatcherPass, so that a group does not see the nodes that an earlier one
    replaced. A group is a sequence of pattern classes; a FileGroup may add hand-written entries. Without `rewrite`
    matches are counted and the graph stays unchanged: a node belongs to the first match that has it.
    Every rewrite is linted (passes.graph_entries); a fault is a MisuseError that names pattern and node.
    """

    def __init__(
        self,
        groups: Mapping[str, Sequence[PatternClass]],
        decompositions: Mapping[Any, Any],
        device: str = "cpu",
        *,
        rewrite: bool = True,
    ) -> None:
        self._trace = make_tracer(decompositions)
        self._rewrite = rewrite
        self._log = _Log()
        self._passes = {name: self._matcher(name, group, device) for name, group in groups.items()}

    def _matcher(self, name: str, group: Sequence[PatternClass], device: str) -> PatternMatcherPass:
        """A torch pass with one group's entries, which lints each of its rewrites."""
        matcher = PatternMatcherPass(pass_name=f"fusionkit_{name}")
        names: dict[int, str] = {}
        for pattern in group:
            register_pattern(pattern, matcher, self._trace, self._admit, device)
            for entry in entries_of(matcher):
                names.setdefault(id(entry), pattern.name())
        for register in group.entries if isinstance(group, FileGroup) else ():
            register_entries(register, matcher, self._admit_entry)
        watch_rewrites(matcher, names, self._inserted)
        return matcher

    @property
    def names(self) -> tuple[str, ...]:
        """The groups' names in order."""
        return tuple(self._passes)

    def entries(self, name: str) -> int:
        """Number of entries of torch's matcher in the group `name`; 0 means that it can never match."""
        return sum(map(len, self._passes[name].patterns.values())) if name in self._passes else 0

    def apply(self, module: torch.fx.GraphModule, graph_index: int = 0) -> tuple[SiteMatch, ...]:
        """Rewrite `module` in place and return every match, in graph order."""
        log = self._log = _Log(graph_index, {node.name: _operand_names(node) for node in module.graph.nodes})
        order = {node.name: index for index, node in enumerate(module.graph.nodes)}
        for name, matcher in self._passes.items():
            log.pattern = name
            matcher.apply(module)
        rewrote = [match.variant for match in log.matches if match.status == "hit"]
        if rewrote and self._rewrite:
            # A fused op returns contiguous memory where its chain kept the input's strides, so a view that was legal
            # may now need a copy: a reshape, as Inductor writes it too. The copy is real: graph and profile show it.
            for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
                node.target = torch.ops.aten.reshape.default
            lint_graph(module, tuple(dict.fromkeys(rewrote)))
            module.recompile()
        return tuple(sorted(log.matches, key=lambda match: order.get(match.anchor, len(order))))

    def _admit(self, pattern: PatternClass, match: Match) -> bool:
        """The extra_check of each class: whether the replacement is allowed here. The match is recorded."""
        if self._is_taken(match):
            return False
        refusal = self._consumed(match) or refuse_replacement(pattern, match)
        self._keep(match, pattern.name(), refusal, argument_names(pattern))
        return refusal is None and self._rewrite

    def _admit_entry(self, name: str, match: Match, allowed: Check, check_of_file: Check | None) -> bool:
        """The extra_check of each entry of a file, which calls the entry's own. The match is recorded."""
        if self._is_taken(match):
            return False
        refusal = self._consumed(match) or refuse_entry(match, check_of_file is not None)
        if refusal is None:
            with own_code(f"extra_check of {name}"):
                if not allowed(match):
                    if check_of_file is not None and check_of_file(match):
                        return False  # a literal differs
                    refusal = Refusal(OWN_CHECK)
        self._keep(match, name, refusal, list(match.kwargs))
        return refusal is None and self._rewrite

    def _is_taken(self, match: Match) -> bool:
        """Whether an earlier match has nodes of this one, which a rewrite would have replaced already."""
        return not self._rewrite and any(node.name in self._log.taken for node in match.nodes)

    def _inserted(self, made: Sequence[torch.fx.Node]) -> None:
        """Note the nodes of a replacement: they are no nodes of the graph before any pattern."""
        self._log.inserted.update(dict.fromkeys(made, self._log.matches[-1]))

    def _consumed(self, match: Match) -> Refusal | None:
        """The refusal of a match that has a node which an earlier replacement inserted."""
        for node in match.nodes:
            if node in self._log.inserted:
                earlier = self._log.inserted[node]
                reason = (
                    f"{node.name} ({node.target}) was inserted by {earlier.pattern}, which replaced {earlier.anchor}"
                    " before (consumed_earlier)"
                )
                return Refusal(reason, cause="consumed_earlier", node=earlier.anchor)
        return None

    def _keep(self, match: Match, variant: str, refusal: Refusal | None, arguments: list[str]) -> None:
        root, log = match.output_node(), self._log
        names = {
            node: log.inserted[node].anchor if node in log.inserted else node.name for node in match.nodes
        }
        self._log.matches.append(
            SiteMatch(
                pattern=self._log.pattern,
                variant=variant,
                graph_index=self._log.graph_index,
                status="hit" if refusal is None else "skipped" if refusal.documented else "refused",
                reason=None if refusal is None else refusal.reason,
                anchor=names.get(root, root.name),
                module=module_path(root),
                source=source_line(root),
                nodes=tuple(dict.fromkeys(names.values())),
                modules=tuple(dict.fromkeys(module_path(node) for node in match.nodes)),
                arguments=literal_arguments(match, arguments, self._log.operands),
                cause="" if refusal is None else refusal.cause,
            )
        )
        if refusal is None:
            self._log.taken.update(node.name for node in match.nodes)


def match_pass_for(
    groups: Mapping[str, Sequence[PatternClass]], decompositions: str, device: str = "cpu"
) -> PatternMatchPass:
    """A match pass over `groups`, its patterns traced with the named decomposition table."""
    return PatternMatchPass(groups, decomposition_table(decompositions), device)


def literal_arguments(match: Match, names: list[str], operands: Mapping[str, list[str]]) -> dict[str, Any]:
    """Pattern argument -> {"node": name in the graph before any pattern}, or the literal in the graph.

    An operand may be the output of an earlier replacement; `operands` (node -> its operands' names before any
    pattern) gives the name of the node that it replaced.
    """
    before = {
        now: old
        for node in match.nodes
        if node.name in operands
        for now, old in zip(_operand_names(node), operands[node.name], strict=True)
    }
    bound = {name: match.kwargs.get(name) for name in names}
    return {
        name: {"node": before.get(value.name, value.name)} if isinstance(value, torch.fx.Node) else value
        for name, value in bound.items()
    }


def _operand_names(node: torch.fx.Node) -> list[str]:
    """Names of the operand nodes of `node`, in order, repetitions kept."""
    names: list[str] = []
    torch.fx.map_arg((node.args, node.kwargs), lambda operand: names.append(operand.name))
    return names
