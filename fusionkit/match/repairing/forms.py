"""The forms of a pattern's missed sites: regions that an old variant's replacement computes, and their differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch.fx
from torch._guards import detect_fake_mode

from fusionkit.errors import USER_CODE_ERRORS
from fusionkit.match.explanation.align import Aligner, Alignment, outputs_of
from fusionkit.match.explanation.calls import Calls
from fusionkit.match.explanation.differences import Surroundings, structural_differences
from fusionkit.match.explanation.literal_differences import literal_differences
from fusionkit.match.explanation.site_search import users_within
from fusionkit.match.ops import FORM_OPS, describe, is_cast, node_pairs, packet
from fusionkit.match.repairing.fits import Fit, find_fit, other_form
from fusionkit.match.repairing.old_variants import OldVariant
from fusionkit.match.repairing.region import Region, regions_like
from fusionkit.passes.registering import fake_like
from fusionkit.passes.tracing import TraceFunction

Node = torch.fx.Node
_MOST_MARKERS = 3  # number of the pattern's rarest ops near which sites are searched
_MOST_ALIKE = 2  # number of places with equal surroundings that are tried
_MOST_KINDS = 60  # number of kinds of places that are tried if no alignment fits
_MOST_KIND_TRIALS = 8
_MOST_FAILURES = 12  # number of places where a variant's replacement does not fit, before giving up


@dataclass(frozen=True, slots=True)
class Form:
    """One form: the old variant, its fit, every region of the form, and one line for each edit.

    `leaking`: regions with an inner node that is used outside, which torch's matcher refuses.
    """

    variant: OldVariant
    fit: Fit
    regions: tuple[Region, ...]
    leaking: tuple[Region, ...]
    edits: tuple[str, ...]


def find_forms(
    variants: Sequence[OldVariant],
    graphs: Sequence[torch.fx.Graph],
    taken: set[Node],
    trace: TraceFunction,
    refused: Collection[Any] = (),
) -> list[Form]:
    """Every form that one of the variants could match after a repair, outside the nodes `taken` by hits.

    A form whose replacement is exact comes before one that it nearly computes. `refused`: keys of fits (see
    `fit_key`) that a proof refused.
    """
    search = _Search(graphs, set(taken), trace, refused)
    for variant in variants:
        search.near(variant)
    search.take_nearest()
    if not search.forms and not taken:
        for variant in variants:
            search.anywhere(variant)
        search.take_nearest()
    return search.forms


class _Search:
    """The forms so far, the nodes that they or earlier hits cover, and the places that a replacement nearly computes.

    `named`: nodes of places that differ from a search part in literals alone: the pattern means the whole of such a
    place, so that no part of it is offered where the replacement does not compute the whole.
    """

    def __init__(
        self,
        graphs: Sequence[torch.fx.Graph],
        covered: set[Node],
        trace: TraceFunction,
        refused: Collection[Any],
    ) -> None:
        self.graphs = graphs
        self.covered = covered
        self.trace = trace
        self.refused = refused
        self.forms: list[Form] = []
        self.named: set[Node] = set()
        self.nearest: list[tuple[OldVariant, Alignment, torch.fx.Graph, Fit]] = []

    def near(self, variant: OldVariant) -> None:
        """Try the places where the variant can be aligned, lowest cost first."""
        failed = Counter[object]()
        for alignment, graph in _near(variant, self.graphs, self.covered):
            root = alignment.roots[0][1]
            around = _surroundings(root)
            most = _MOST_FAILURES if not self.forms else _MOST_FAILURES // 3
            if root in self.covered or failed[around] > 1 or sum(failed.values()) >= most:
                continue
            if not self.take(
                variant, alignment, graph, find_fit(variant, alignment, self.trace, self.refused)
            ):
                failed[around] += 1

    def anywhere(self, variant: OldVariant) -> None:
        """Try every kind of place, rarest ops first: for a pattern that is written with entirely different ops."""
        outputs = outputs_of(variant.graph)
        if len(outputs) != 1:
            return
        for graph in self.graphs:
            calls = [node for node in graph.nodes if node.op == "call_function"]
            counts = Counter(packet(node) for node in calls)
            kinds: dict[object, Node] = {}
            for node in calls:
                kinds.setdefault(_surroundings(node, 2), node)
            rare = sorted(kinds.values(), key=lambda node: (packet(node) in FORM_OPS, counts[packet(node)]))
            for node in rare[:_MOST_KINDS]:
                alignment = Alignment(float("inf"), ((outputs[0], node),))
                if node not in self.covered:
                    fit = find_fit(variant, alignment, self.trace, self.refused, _MOST_KIND_TRIALS)
                    self.take(variant, alignment, graph, fit)

    def take(self, variant: OldVariant, alignment: Alignment, graph: torch.fx.Graph, fit: Fit | None) -> bool:
        """Add the form of an exact fit with its uncovered regions; returns whether there was one."""
        if fit is None:
            return False
        if not fit.is_exact:
            self.nearest.append((variant, alignment, graph, fit))
            if _differs_in_literals_only(variant, alignment, fit):
                self.named |= {*fit.region.nodes}
            return False
        if self.named & {*fit.region.nodes}:
            return False
        self._add(variant, alignment, graph, fit)
        return True

    def take_nearest(self) -> None:
        """Add what no exact form covers: by another call of the replacement's op if one is exact, else as it is."""
        for variant, alignment, graph, fit in self.nearest:
            if not self.covered & {*fit.region.nodes}:
                self._add(variant, alignment, graph, other_form(variant, fit) or fit)
        self.nearest = []

    def _add(self, variant: OldVariant, alignment: Alignment, graph: torch.fx.Graph, fit: Fit) -> None:
        same = [item for item in regions_like(fit.region, self.graphs) if not self.covered & {*item.nodes}]
        if same:
            self.covered |= {node for item in same for node in item.nodes}
            whole = tuple(item for item in same if not item.leaks)
            fit = fit.settled(variant, whole)
            edits = _edits(variant, alignment, fit, graph, self.trace) or ("written anew from the graph",)
            self.forms.append(Form(variant, fit, whole, tuple(item for item in same if item.leaks), edits))


def _differs_in_literals_only(variant: OldVariant, alignment: Alignment, fit: Fit) -> bool:
    calls = [node for node in variant.graph.nodes if node.op == "call_function"]
    return len(calls) == len(fit.region.nodes) and all(
        node in alignment.pairs and alignment.pairs[node].target == node.target for node in calls
    )


def _near(
    variant: OldVariant, graphs: Sequence[torch.fx.Graph], covered: set[Node]
) -> Iterator[tuple[Alignment, torch.fx.Graph]]:
    """Alignments of the variant with places of the graphs, the cheapest first."""
    limit = max(3.0, 0.9 * sum(1 for node in variant.graph.nodes if node.op == "call_function"))
    bounds = []
    alike = Counter[object]()
    for graph in graphs:
        aligner = Aligner(variant.graph, Calls(), [*variant.scalars.values()])
        near = _reach(variant.graph, graph)
        for order, node in enumerate(graph.nodes):
            if node not in near or node in covered:
                continue
            around = _surroundings(node)
            alike[around] += 1
            if alike[around] <= _MOST_ALIKE and (bound := aligner.bound(node)) < limit:
                bounds.append((bound, order, node, aligner, graph))
    made = []
    for _, order, node, aligner, graph in sorted(bounds, key=lambda item: item[:2])[:40]:
        if (alignment := aligner.align(node, limit)) is not None:
            made.append((alignment.cost, order, alignment, graph))
    yield from (item[2:] for item in sorted(made, key=lambda item: item[:2]))


def _reach(pattern: torch.fx.Graph, graph: torch.fx.Graph) -> set[Node]:
    """Possible ends of a site: calls a few steps after two of the pattern's rarest ops, and calls like its outputs.

    Every call if the graph has none of the pattern's ops.
    """
    calls = [node for node in graph.nodes if node.op == "call_function"]
    counts = Counter(packet(node) for node in calls)
    own = {packet(node) for node in pattern.nodes if node.op == "call_function"}
    present = [name for name in own if counts[name]]
    if not present:
        return set(calls)
    rare = sorted(present, key=lambda name: (name in FORM_OPS, counts[name]))[:_MOST_MARKERS]
    steps = sum(1 for node in pattern.nodes if node.op == "call_function") + 2
    starts = ([node for node in calls if packet(node) == name] for name in rare)
    seen = Counter(node for start in starts for node in users_within(start, steps))
    ends = {(packet(node), packet(below)) for node in outputs_of(pattern) for below in node.all_input_nodes}
    alike = {n for n in calls if any((packet(n), packet(below)) in ends for below in n.all_input_nodes)}
    return alike | {node for node, count in seen.items() if count >= min(2, len(rare))}


def _surroundings(root: Node, depth: int = 3) -> object:
    """Ops and dtypes of a node and its operands, `depth` levels deep, in comparable form."""
    value = root.meta.get("val")
    below = tuple(_surroundings(node, depth - 1) for node in root.all_input_nodes) if depth else ()
    name = str(root.target) if root.op == "call_function" else root.op
    return name, str(getattr(value, "dtype", "")), below


def _edits(
    variant: OldVariant, alignment: Alignment, fit: Fit, graph: torch.fx.Graph, trace: TraceFunction
) -> tuple[str, ...]:
    """The changes, one line each."""
    present = {packet(node) for node in graph.nodes if node.op == "call_function"}
    around = Surroundings(present, Calls(variant.scalars.values()).stands_in)
    differences = structural_differences(alignment, around)
    differences += literal_differences(alignment, _retrace(variant, fit.region, trace), around.stands_in)
    lines = [
        f"{item.type}: {item.expected} -> {item.actual}"
        + (f" (node {item.graph_node.name})" if item.graph_node is not None else "")
        for item in differences
    ]
    root = alignment.roots[0][1]
    moved = [node for node in fit.region.outputs if is_cast(node) and root in node.all_input_nodes]
    lines += [f"dtype_path: no cast -> {describe(node)} (node {node.name})" for node in moved]
    if fit.taken is not None:
        call = fit.taken.bound.text(variant.tensors, None).removeprefix("return ")
        lines.append(f"replacement: not equal at this site -> {call}")
    lifted = [name for name in fit.values if name in variant.written]
    lines += [f"scalar_literal: {variant.written[n]} in both functions -> argument {n}" for n in lifted]
    own = "parameter_source: a tensor held by the pattern"
    lines += [f"{own} -> argument {name}" for name in variant.closure_tensors]
    lines += [f"unused_argument: {name} -> dropped" for name in variant.dropped]
    return tuple(dict.fromkeys(" ".join(line.split()) for line in lines))


def _retrace(variant: OldVariant, region: Region, trace: TraceFunction) -> dict[Node, Node] | None:
    """Nodes of the variant's graph -> nodes of its retrace at the region's shapes; None if the ops differ there."""
    values = region.input_values
    mode = detect_fake_mode(values)
    if mode is None:
        return None
    try:
        with mode:
            fresh = [fake_like(value, str(value.device)) for value in values]
            again = variant.trace_search(fresh, trace)
    except USER_CODE_ERRORS:
        return None
    return node_pairs(variant.graph, again)
