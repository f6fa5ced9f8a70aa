"""Why a pattern misses a site: torch's matcher says where it stops, the alignment lists every difference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusionkit.capture.graphs import CapturedGraph
from fusionkit.capture.sources import module_path, source_line
from fusionkit.encoding import Result
from fusionkit.errors import USER_CODE_ERRORS, FusionKitError
from fusionkit.match.explanation.align import outputs_of
from fusionkit.match.explanation.calls import Calls
from fusionkit.match.explanation.causes import Cause, cause_of, plain_cause
from fusionkit.match.explanation.differences import Difference, Surroundings, structural_differences
from fusionkit.match.explanation.graph_breaks import GraphBreaks
from fusionkit.match.explanation.literal_differences import cast_at_entry, literal_differences
from fusionkit.match.explanation.refusals import refused_by_matcher
from fusionkit.match.explanation.rotations import COMPLEX, REAL, complex_rotations, is_rotation
from fusionkit.match.explanation.rows import AlignedRow, aligned_rows, edit_of
from fusionkit.match.explanation.site_search import BUDGETS, Place, Places
from fusionkit.match.explanation.variants import Answer, Variant
from fusionkit.match.ops import FORM_OPS, describe, packet


@dataclass(frozen=True, slots=True)
class SiteExplanation(Result, without=("rows", "place"), keys={"said": "matcher"}):
    """One missed site: its location, the nearest variant, and every cause.

    `anchor`: the graph node at which the pattern would end. `stage` and `said`: where torch's matcher stopped, and
    its message. `nodes`: the graph nodes of the alignment; `rows`: pattern and graph side by side. `place`: the
    alignment itself. `near`: whether the site has most of the variant's ops; if not, the causes name the ops that it
    has instead, and there is no edit.
    """

    anchor: str
    module: str
    source: str
    status: str
    pattern: str
    causes: tuple[Cause, ...]
    stage: str = ""
    said: str = ""
    nodes: tuple[str, ...] = ()
    rows: tuple[AlignedRow, ...] = ()
    place: Place | None = None
    near: bool = True


class Explainer:
    """Explains misses of one pattern's variants in one graph (before the patterns).

    `taken`: node name -> pattern whose match replaced the node. `breaks`: those of the capture.
    """

    def __init__(
        self,
        graph: CapturedGraph,
        variants: Sequence[Variant],
        taken: Mapping[str, str] | None = None,
        breaks: GraphBreaks | None = None,
    ) -> None:
        self._graph = graph
        self._breaks = breaks or GraphBreaks((graph,), ())
        self._variants = variants
        self._taken = dict(taken or {})
        self._places = Places(graph.nodes, variants)
        self._places_without: dict[frozenset[str], list[tuple[Place, frozenset[str]]]] = {}

    def near_misses(self, skip: frozenset[str] = frozenset()) -> list[SiteExplanation]:
        """An explanation of every place with most of a variant's ops, nearest first; `skip`: nodes of matches.

        Where there is none, of every place with half of the ops of a short pattern.
        """
        places = [place for place, _ in self._all(skip)]
        near = [p for p in places if p.is_near] or [p for p in places if p.is_half_near]
        return [self.explain_place(place) for place in sorted(near, key=lambda place: place.alignment.cost)]

    def explain(
        self, module: str, ordinal: int, skip: frozenset[str] = frozenset(), of: int = 1
    ) -> SiteExplanation:
        """Explain the `ordinal`-th of `of` missed sites of module path `module`; `skip`: nodes of matches."""
        every = self._all(skip)
        exact = (
            [place for place, paths in every if module in paths]
            or [place for place, paths in every if any(below(path, module) for path in paths)]
            or self._below(module, skip)
        )
        if not any(place.is_near for place in exact):
            rotated = self._complex_rotation(module, ordinal, skip)
            if rotated is not None:
                return rotated
        if not exact:
            return self._without_place(module, skip)
        nearest = sorted(exact, key=lambda place: place.likeness)[: max(of, 1)]
        in_order = [place for place in exact if place in nearest]
        return self.explain_place(in_order[min(ordinal, len(in_order) - 1)])

    def explain_place(self, place: Place) -> SiteExplanation:
        """Every cause that keeps the nearest variant from matching at one place."""
        alignment, variant = place.alignment, place.variant
        root = alignment.roots[0][1]
        answer = variant.ask(root)
        differences = self._breaks.with_breaks(self._differences(place, answer), self._graph)
        near = place.is_near or place.is_half_near
        causes = [cause_of(item, edit_of(item, alignment) if near else None) for item in differences]
        if answer.stage in ("hit", "check"):  # it matches by itself, so an earlier pattern is the first cause
            causes = [*self._consumed(place), *causes]
        if not causes:
            actual = f"refused by the matcher: {answer.said}"[:300]
            causes.append(plain_cause("unexplained", "a match", actual, root.name))
        return SiteExplanation(
            root.name,
            module_path(root),
            source_line(root),
            "miss",
            variant.name,
            tuple(causes),
            answer.stage,
            answer.said[:2000],
            tuple(node.name for node in alignment.graph_nodes),
            aligned_rows(variant, alignment, differences),
            place,
            near,
        )

    def _differences(self, place: Place, answer: Answer) -> list[Difference]:
        variant, alignment = place.variant, place.alignment
        refusals = refused_by_matcher(variant, alignment, answer)
        if refusals and variant.unmatchable is None and answer.stage != "dtype":
            return refusals
        around = Surroundings(self._places.present, Calls(variant.scalars.values()).stands_in)
        structural = structural_differences(alignment, around)
        try:
            specific = variant.retrace(alignment.bindings)
        except FusionKitError:  # such as a time limit, which would only be reached again
            raise
        except USER_CODE_ERRORS:
            specific = None
        literal = literal_differences(alignment, specific, around.stands_in)
        differences = [*refusals, *structural, *literal]
        entry = cast_at_entry(alignment)
        known = {difference.graph_node for difference in differences}
        if entry is None or not differences or entry.graph_node in known:
            return differences
        return [*differences, entry]

    def _consumed(self, place: Place) -> list[Cause]:
        for p, g in place.alignment.pairs.items():
            if g.name in self._taken:
                actual = f"taken by {self._taken[g.name]}"
                return [plain_cause("consumed_earlier", "a free node", actual, g.name, p.name)]
        return []

    def _all(self, skip: frozenset[str]) -> list[tuple[Place, frozenset[str]]]:
        """Every place outside `skip` with the modules of its nodes, cached for all missed sites."""
        if skip not in self._places_without:
            free = [node for node in self._places.nodes if node.name not in skip]
            self._places_without[skip] = [
                (place, frozenset(map(module_path, place.alignment.graph_nodes)))
                for place in self._places.find(free)
            ]
        return self._places_without[skip]

    def _below(self, module: str, skip: frozenset[str]) -> list[Place]:
        """The nearest place among the module's own nodes that shares at least one op with the pattern."""
        nodes = [n for n in self._places.nodes if n.name not in skip and below(module_path(n), module)]
        own = Places(nodes, self._variants)
        places = [
            place
            for place in own.find(nodes, (*BUDGETS, math.inf))
            if any(p.target == g.target for p, g in place.alignment.pairs.items())
        ]
        return sorted(places, key=lambda place: place.likeness)[:1]

    def _complex_rotation(self, module: str, ordinal: int, skip: frozenset[str]) -> SiteExplanation | None:
        """The explanation of the module's `ordinal`-th complex rotation, where a pattern rotates real halves."""
        variant = next((variant for variant in self._variants if is_rotation(variant)), None)
        own = [n for n in self._places.nodes if n.name not in skip and below(module_path(n), module)]
        ends = [] if variant is None else complex_rotations(own)
        if variant is None or not ends:
            return None
        end = ends[min(ordinal, len(ends) - 1)]
        cause = cause_of(Difference("decomposition", outputs_of(variant.graph)[0], end, REAL, COMPLEX))
        where, nodes = source_line(end), (end.all_input_nodes[0].name, end.name)
        return SiteExplanation(end.name, module, where, "miss", variant.name, (cause,), nodes=nodes)

    def _without_place(self, module: str, skip: frozenset[str]) -> SiteExplanation:
        """The explanation of a site that has no op of the pattern."""
        calls = [n for n in self._places.nodes if n.name not in skip and below(module_path(n), module)]
        variant = self._variants[0]
        root = outputs_of(variant.graph)[0]
        seen = dict.fromkeys(describe(node) for node in calls if packet(node) not in FORM_OPS)
        if not calls:
            actual = "no node of this module in the graph"
            cause = plain_cause("root_not_indexed", describe(root), actual)
            return SiteExplanation("", module, "", "miss", variant.name, (cause,), near=False)
        actual = ", ".join(seen) or describe(calls[0])
        cause = cause_of(Difference("decomposition", root, calls[0], describe(root), actual))
        where = source_line(calls[0])
        return SiteExplanation(calls[0].name, module, where, "miss", variant.name, (cause,), near=False)


def below(path: str, module: str) -> bool:
    """Whether module `path` is `module` or one of its submodules."""
    return module == "" or path == module or path.startswith(f"{module}.")
