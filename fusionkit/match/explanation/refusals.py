"""Differences that torch's matcher reports although the structure fits: mutation, metadata, retrace, replacement."""

from __future__ import annotations

import traceback

import torch.fx

from fusionkit.capture.sources import source_line
from fusionkit.match.explanation.align import Alignment, outputs_of
from fusionkit.match.explanation.differences import Difference
from fusionkit.match.explanation.literal_differences import cast_at_entry
from fusionkit.match.explanation.variants import Answer, Variant
from fusionkit.match.ops import operands
from fusionkit.passes.admission import Refusal
from fusionkit.subjects.source_paths import short_path


def refused_by_matcher(variant: Variant, alignment: Alignment, answer: Answer) -> list[Difference]:
    """The differences that only the matcher's own run shows; none if the structure or a literal differs."""
    p, g = alignment.roots[0]
    if variant.unmatchable is not None and variant.unmatchable.kind == "unused_argument":
        return [
            Difference("unused_argument", node, g, "every argument used", f"{node.target} is not used")
            for node in variant.placeholders
            if not node.users
        ]
    if answer.stage == "dtype":
        return [Difference("unsupported_dtype", p, g, "a node that torch's matcher stops at", answer.said)]
    if answer.stage == "mutation":
        node = _mutation_between(g.graph, answer) or g
        crossing = f"nodes on both sides: {answer.said}"
        return [Difference("mutation_region", p, node, "no mutation between the nodes of a match", crossing)]
    if answer.stage == "meta":
        node = next(node for node in g.graph.nodes if node.name == answer.said)
        bound = {g: place for place, g in alignment.bindings.items() if isinstance(g, torch.fx.Node)}
        return [Difference("missing_meta", bound.get(node), node, "a value in meta['val']", "none")]
    if answer.stage == "retrace":
        node = _raising_node(variant) or p
        return [Difference("retrace_error", node, g, "a trace at the site's shapes", answer.said)]
    if answer.refusal is not None and answer.refusal.cause == "kwargs_structure":
        return []  # the alignment shows it
    if answer.stage == "check":  # the site's cast before the pattern's first op, if any, may be the reason
        refused = _checked(answer.refusal, alignment, answer.said)
        entry = cast_at_entry(alignment)
        return [refused] if entry is None else [refused, entry]
    return _of_structure(variant, p, g, answer.said) if answer.stage == "structure" else []


# Cause type of a refusal -> what the replacement needs.
NEEDED = {
    "extra_check": "a replacement that fits here",
    "cycle": "arguments that do not depend on the match",
    "consumed_earlier": "a free node",
    "kwargs_structure": "the keywords of the pattern alone",
    "missing_meta": "a value in meta['val']",
}


def _checked(refusal: Refusal | None, alignment: Alignment, said: str) -> Difference:
    """The refusal of a match by the check of its replacement; for a cycle the argument and its graph node."""
    p, g = alignment.roots[0]
    cause = "extra_check" if refusal is None else refusal.cause
    if refusal is not None and refusal.node:
        g = next((node for node in g.graph.nodes if node.name == refusal.node), g)
        p = next((place for place, bound in alignment.bindings.items() if bound is g), p)
    return Difference(cause, p, g, NEEDED[cause], said)


def _of_structure(variant: Variant, p: torch.fx.Node, g: torch.fx.Node, said: str) -> list[Difference]:
    """Structural faults that no alignment shows: an ambiguous stand-in, outputs without a common node."""
    clash = _clashing_stand_in(variant)
    if clash is None and said.startswith("no anchor found"):
        outputs = ", ".join(node.name for node in outputs_of(variant.graph))
        reason = (
            f"no node that {outputs} have in common: from the first output the matcher cannot find the others"
        )
        return [Difference("missing_node", p, g, "outputs that share a node", reason)]
    return [] if clash is None else [clash]


def _clashing_stand_in(variant: Variant) -> Difference | None:
    """A stand-in value that occurs more than once in the trace: torch replaces every occurrence by the argument."""
    for name, value in variant.scalars.items():
        places = [
            (node, label)
            for node in variant.calls
            for label, literal in operands(node).items()
            if type(literal) in (int, float, bool) and literal == value
        ]
        if len(places) > 1:
            actual = f"{value} is " + ", ".join(f"{label} of {node.name}" for node, label in places)
            return Difference("scalar_literal", places[0][0], None, f"{value} only where '{name}' is", actual)
    return None


def _mutation_between(graph: torch.fx.Graph, answer: Answer) -> torch.fx.Node | None:
    """The first mutating node between the first and the last matched one."""
    from torch._inductor.pattern_matcher import is_mutation_op

    if answer.match is None:
        return None
    matched = set(answer.match.nodes)
    seen = 0
    for node in graph.nodes:
        seen += node in matched
        if 0 < seen < len(matched) and node not in matched and is_mutation_op(node):
            return node  # type: ignore[no-any-return]
    return None


def _raising_node(variant: Variant) -> torch.fx.Node | None:
    """The pattern's node whose source line is in the traceback of the retrace's error, or None."""
    if variant.raised is None:
        return None
    frames = traceback.extract_tb(variant.raised.__traceback__)
    lines = [f"{short_path(frame.filename)}:{frame.lineno}" for frame in reversed(frames)]
    by_line = {source_line(node): node for node in reversed(variant.calls)}
    return next((by_line[line] for line in lines if line in by_line), None)
