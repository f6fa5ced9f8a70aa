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
from fusionkit.passes.registering import PatternClass, argument_names, literal_arguments, register_pattern
from fusionkit.passes.tracing import make_tracer


@dataclass(slots=True)
class _Log:
    """The matches of the graph that is being worked on."""

    graph_index: int = 0
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

    def apply(self, module: torch.fx.GraphModule, graph_index: int = 0) -> tuple[SiteMatch, ...]:
        """Rewrite `module` in place and return what happened at each matched site."""
        log = self._log = _Log(graph_index)
        order = {node.name: index for index, node in enumerate(module.graph.nodes)}
        for name, matcher in self._passes.items():
            log.pattern = name
            matcher.apply(module)
        if log.matches:
            module.graph.lint()
            module.recompile()
        return tuple(sorted(log.matches, key=lambda match: order[match.anchor]))

    def _admit(self, pattern: PatternClass, match: Match) -> bool:
        """The extra check of each entry: is the replacement allowed here? Every answer is kept."""
        root = match.output_node()
        reason = refuse_replacement(pattern, match)
        self._log.matches.append(
            SiteMatch(
                pattern=self._log.pattern,
                variant=pattern.name(),
                graph_index=self._log.graph_index,
                status="hit" if reason is None else "skipped",
                reason=reason,
                anchor=root.name,
                module=module_path(root),
                source=source_line(root),
                nodes=tuple(node.name for node in match.nodes),
                modules=tuple(dict.fromkeys(module_path(node) for node in match.nodes)),
                arguments=literal_arguments(match, argument_names(pattern)),
            )
        )
        return reason is None and self._rewrite
