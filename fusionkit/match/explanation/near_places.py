"""The near places of a pattern in a graph where no site is known: searched around the ops that identify the fusion."""

from __future__ import annotations

from collections.abc import Sequence

from fusionkit.match.explanation.align import Aligner, Alignment
from fusionkit.match.explanation.composites import part_names, wholes_of
from fusionkit.match.explanation.moves import Node
from fusionkit.match.explanation.site_search import Place, Places, near_cost
from fusionkit.match.explanation.variants import Variant
from fusionkit.match.ops import FORM_OPS, MATMULS

# Ops that are no sign of any one fusion.
_COMMON = FORM_OPS | MATMULS | {"aten.unbind", "aten.stack", "cast"}
_ROUNDING = 1e-6  # of summed costs


class NearPlaces(Places):
    """Finds only near places that share an op with the pattern that few other fusions have.

    It is much cheaper than the search for known sites: each variant is aligned only around nodes of its own
    identifying ops, and no alignment is followed beyond the cost of a near place.
    """

    def __init__(self, nodes: Sequence[Node], variants: Sequence[Variant]) -> None:
        super().__init__(nodes, variants)
        self._identifying = [self._identifying_of(variant) for variant in variants]

    def near(self, free: Sequence[Node]) -> list[Place]:
        """The near places among `free`, in graph order, without overlaps."""
        return [place for place in self.find(free) if place.is_near and self._is_recognised(place)]

    def _is_recognised(self, place: Place) -> bool:
        """Whether an identifying op of the pattern is at its place, as itself, composed or decomposed."""
        names = self._identifying[self.variants.index(place.variant)]
        seen = [g for p, g in place.alignment.pairs.items() if p.target == g.target]
        for step in place.alignment.steps:
            if step.g is None or step.kind not in ("composite", "substitute"):
                continue
            seen += step.g.all_input_nodes if step.kind == "substitute" else (step.g, *step.members)
        return any(self.calls[node].packet in names for node in seen)

    def _identifying_of(self, variant: Variant) -> frozenset[str]:
        """The variant's ops that are neither common forms nor matmuls, or its rarest op if it has no other.

        With an op that the graph lacks, also those which it decomposes into, and those which decompose into it.
        """
        names = [self.calls[node].packet for node in variant.calls]
        own = [node for node in variant.calls if self.calls[node].packet not in _COMMON]
        if not own:
            return frozenset(sorted(filter(self.present.get, names), key=self.present.__getitem__)[:1])
        lacking = [node for node in own if not self.present[self.calls[node].packet]]
        parts = set().union(*map(part_names, lacking)) - _COMMON
        uncommon = [node for node in self.nodes if self.calls[node].packet not in _COMMON]
        wholes = wholes_of(own, uncommon, within=variant.calls)
        return frozenset([*(self.calls[node].packet for node in own), *parts, *wholes])

    def _markers(self) -> list[str]:
        names = dict.fromkeys(name for names in self._identifying for name in sorted(names))
        return [name for name in names if self.present[name]]

    def _has(self, alignment: Alignment, anchor: Node) -> bool:
        """A part of a decomposed op may be an operand of the alignment's nodes."""
        return any(node in alignment.graph_nodes for node in (anchor, *anchor.users))

    def _tried(self, anchor: Node, budget: float) -> list[tuple[Variant, Aligner, float]]:
        here = self.calls[anchor].packet
        return [
            (variant, aligner, min(budget, near_cost(variant.calls) + _ROUNDING))
            for (variant, aligner, _), names in zip(
                super()._tried(anchor, budget), self._identifying, strict=True
            )
            if here in names
        ]
