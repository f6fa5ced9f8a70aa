"""Why a pattern misses a site: torch's matcher says that it does, the alignment says how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode

from fusionkit.capture.graphs import CapturedGraph
from fusionkit.capture.sources import module_path, source_line
from fusionkit.match.align import Alignment, Difference, align
from fusionkit.match.causes import Cause, cause_of, plain_cause
from fusionkit.match.literals import literal_differences
from fusionkit.match.ops import FORM_OPS, describe, packet
from fusionkit.passes.hits import SiteMatch
from fusionkit.passes.registering import PatternClass, argument_names, example_inputs, fake_like, scalars_of
from fusionkit.passes.tracing import TraceFunction


@dataclass(frozen=True, slots=True)
class SiteExplanation:
    """One site that a pattern should have taken: where it is, the nearest variant, and every cause."""

    anchor: str
    module: str
    source: str
    status: str
    pattern: str
    causes: tuple[Cause, ...]

    def to_dict(self) -> dict[str, Any]:
        """The site of the explain JSON."""
        return {
            "anchor": self.anchor,
            "module": self.module,
            "source": self.source,
            "status": self.status,
            "pattern": self.pattern,
            "causes": [cause.to_dict() for cause in self.causes],
        }


class Explainer:
    """Explains misses of one pattern group in one graph (as it stood before the patterns)."""

    def __init__(
        self,
        graph: CapturedGraph,
        group: Sequence[PatternClass],
        trace: TraceFunction,
        matches: Sequence[SiteMatch] = (),
        device: str = "cpu",
    ) -> None:
        self._graph = graph
        self._trace = trace
        self._counts = Counter(packet(node) for node in graph.nodes)
        self._variants = [(pattern, _trace_variant(pattern, trace, device)) for pattern in group]
        self._taken = {
            name: match.pattern for match in matches if match.status == "hit" for name in match.nodes
        }

    def anchors(self, nodes: Sequence[torch.fx.Node], *, telling: bool = False) -> list[torch.fx.Node]:
        """The nodes among `nodes` at which a site of the pattern can be recognised, in graph order.

        `telling`: only ops that say which fusion a chain belongs to; without it any op of the pattern will do.
        """
        for wanted in self._anchor_packets():
            if telling and wanted not in self._telling_packets():
                continue
            found = [node for node in nodes if packet(node) == wanted]
            if found:
                return found
        return []

    def explain(self, module: str, ordinal: int, skip: frozenset[str] = frozenset()) -> SiteExplanation:
        """Explain the `ordinal`-th unmatched site below module path `module`.

        `skip` names the anchors of sites that were matched.
        """
        nodes = [
            node for node in self._graph.nodes if below(module_path(node), module) and node.name not in skip
        ]
        calls = [node for node in nodes if node.op == "call_function"]
        anchors = self.anchors(calls)
        if not anchors:
            return self._without_anchor(module, calls)
        return self.explain_anchor(anchors[min(ordinal, len(anchors) - 1)])

    def explain_anchor(self, anchor: torch.fx.Node) -> SiteExplanation:
        """Explain the site around one graph node: nearest variant, all causes."""
        tried = [
            (pattern, graph, align(node, anchor))
            for pattern, graph in self._variants
            for node in graph.nodes
            if packet(node) == packet(anchor)
        ]
        judged = [
            (pattern, alignment, self._differences(pattern, graph, alignment))
            for pattern, graph, alignment in tried
        ]
        pattern, alignment, differences = max(
            judged, key=lambda item: (len(item[1].pairs) - 0.75 * len(item[2]), -len(item[2]))
        )
        causes = [cause_of(difference) for difference in differences]
        causes.extend(self._consumed(alignment))
        if not causes:
            causes.append(
                plain_cause(
                    "unexplained", graph_node=anchor.name, expected="a match", actual="refused by the matcher"
                )
            )
        return SiteExplanation(
            anchor.name, module_path(anchor), source_line(anchor), "miss", pattern.name(), tuple(causes)
        )

    def _differences(
        self, pattern: PatternClass, graph: torch.fx.Graph, alignment: Alignment
    ) -> list[Difference]:
        scalars = scalars_of(pattern)
        try:
            specific = _retrace(pattern, graph, alignment, self._trace)
        except (RuntimeError, TypeError, ValueError, IndexError, AssertionError) as error:
            what = (str(error).splitlines() or ["?"])[0]
            node = next(iter(alignment.pairs))
            failed = Difference(
                "retrace_error", node, alignment.pairs[node], "a trace", f"{type(error).__name__}: {what}"
            )
            return [*alignment.differences, *literal_differences(alignment, None, scalars), failed]
        return [*alignment.differences, *literal_differences(alignment, specific, scalars)]

    def _consumed(self, alignment: Alignment) -> list[Cause]:
        for p, g in alignment.pairs.items():
            if g.name in self._taken:
                return [
                    plain_cause(
                        "consumed_earlier",
                        graph_node=g.name,
                        pattern_node=p.name,
                        expected="a free node",
                        actual=f"taken by {self._taken[g.name]}",
                    )
                ]
        return []

    def _anchor_packets(self) -> list[str]:
        """Packets of the patterns' nodes that the graph has, the telling ones first, then the rare ones."""
        seen = dict.fromkeys(
            packet(node) for _, graph in self._variants for node in graph.nodes if node.op == "call_function"
        )
        present = [name for name in seen if self._counts[name]]
        return sorted(present, key=lambda name: (name in FORM_OPS, self._counts[name]))

    def _telling_packets(self) -> set[str]:
        """The ops that say which fusion a chain is: of the variants that have more of theirs in the graph than not."""
        found: set[str] = set()
        for _, graph in self._variants:
            own = {packet(node) for node in graph.nodes if node.op == "call_function"} - set(FORM_OPS)
            present = {name for name in own if self._counts[name]}
            if 2 * len(present) > len(own):
                found |= present
        return found

    def _without_anchor(self, module: str, calls: Sequence[torch.fx.Node]) -> SiteExplanation:
        """No op of the pattern stands at this site."""
        pattern, graph = self._variants[0]
        root = next(node for node in reversed(list(graph.nodes)) if node.op == "call_function")
        seen = (
            ", ".join(dict.fromkeys(describe(node) for node in calls if packet(node) not in FORM_OPS))
            or "no call"
        )
        cause = Difference("decomposition", root, calls[0] if calls else None, describe(root), seen)
        place = calls[0] if calls else None
        return SiteExplanation(
            place.name if place is not None else "",
            module,
            source_line(place) if place is not None else "",
            "miss",
            pattern.name(),
            (cause_of(cause),)
            if calls
            else (
                plain_cause(
                    "root_not_indexed", expected=describe(root), actual="no node of this module in the graph"
                ),
            ),
        )


def _trace_variant(pattern: PatternClass, trace: TraceFunction, device: str) -> torch.fx.Graph:
    """The variant's graph at its example shapes, scalars at their stand-in values."""
    scalars = scalars_of(pattern)
    with FakeTensorMode(allow_non_fake_inputs=True):
        tensors = iter([fake_like(tensor, device) for tensor in example_inputs(pattern)])
        arguments = [scalars[name] if name in scalars else next(tensors) for name in argument_names(pattern)]
        return trace(pattern.pattern, arguments).graph


def _retrace(
    pattern: PatternClass, graph: torch.fx.Graph, alignment: Alignment, trace: TraceFunction
) -> Mapping[torch.fx.Node, torch.fx.Node] | None:
    """The pattern traced at the site's own shapes, node for node; None if the site does not bind every argument."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    scalars = scalars_of(pattern)
    arguments: list[Any] = []
    for name, placeholder in zip(argument_names(pattern), placeholders, strict=True):
        bound = alignment.bindings.get(placeholder)
        value = scalars.get(name) if bound is None else bound.meta.get("val")
        if value is None:
            return None
        arguments.append(value)
    mode = detect_fake_mode(arguments)
    if mode is None:
        return None
    with mode:
        fresh = [
            fake_like(item, str(item.device)) if isinstance(item, torch.Tensor) else item
            for item in arguments
        ]
        again = trace(pattern.pattern, fresh).graph
    ours, theirs = list(graph.nodes), list(again.nodes)
    if [packet(node) for node in ours] != [packet(node) for node in theirs]:
        return None
    return dict(zip(ours, theirs, strict=True))


def below(path: str, module: str) -> bool:
    """Whether module `path` is `module` or stands below it."""
    return module == "" or path == module or path.startswith(f"{module}.")
