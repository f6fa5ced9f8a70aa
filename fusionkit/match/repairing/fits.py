"""From an alignment to the region that a replacement computes: argument bindings are tried on random inputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx

from fusionkit.errors import MisuseError
from fusionkit.match.explanation.align import Alignment
from fusionkit.match.ops import is_cast, operands
from fusionkit.match.repairing.copies import copies_added
from fusionkit.match.repairing.old_variants import OldVariant
from fusionkit.match.repairing.region import Region, Slot, enclose, is_number, with_edge_casts
from fusionkit.match.repairing.region_numbers import exact, plausible
from fusionkit.match.repairing.synthesis_ops import TakenOp, take_op
from fusionkit.passes.tracing import CalledOps, TraceFunction

Node = torch.fx.Node
_MOST_STATES = 3000
_MOST_TRIALS = 24


@dataclass(frozen=True, slots=True)
class Fit:
    """A region that an old variant's replacement computes. `scalars`: its numbers -> scalar arguments.

    `is_exact`: the two agree in the filter `exact`, which still has to be proven. `taken`: the call that computes
    the region in place of the old replacement.
    """

    region: Region
    scalars: Mapping[Slot, str]
    is_exact: bool = True
    taken: TakenOp | None = None

    def settled(self, variant: OldVariant, regions: Sequence[Region]) -> Fit:
        """The fit without the written numbers whose value in all these regions is the variant's own."""
        kept = {
            slot: name
            for slot, name in self.scalars.items()
            if name in variant.scalars
            or any(region.argument(slot) != variant.written[name] for region in regions)
        }
        return replace(self, scalars=kept)

    @property
    def values(self) -> dict[str, Any]:
        """The scalars' values in the region."""
        return {name: self.region.argument(slot) for slot, name in self.scalars.items()}


def find_fit(
    variant: OldVariant,
    alignment: Alignment,
    trace: TraceFunction,
    refused: Collection[Any] = (),
    most: int = _MOST_TRIALS,
) -> Fit | None:
    """The region at an alignment that the variant's replacement computes, or the first that it nearly computes, or None.

    Up to `most` candidates are tried: first the region of the alignment's own bindings, then those of other cuts of
    the graph with as many inputs, likeliest first. The replacement's results on random inputs decide. `refused`: keys
    of fits (see `fit_key`) that a proof refused.
    """
    known = _known(variant, alignment)
    outputs = [node for _, node in alignment.roots]
    nearest: Fit | None = None
    trials = 0
    for region in _regions(variant, outputs, known):
        for scalars in _scalar_choices(variant, alignment, region):
            fit = Fit(region, scalars)
            if fit_key(variant, fit) not in refused and plausible(region, variant.replacement(fit.values)):
                candidate = variant.replacement_at(region, fit.values, trace)
                if exact(region, candidate):
                    return _with_fewest_copies(fit, candidate)
                nearest = nearest or replace(fit, is_exact=False)
            trials += 1
        if trials >= most:
            break
    return nearest


def fit_key(variant: OldVariant, fit: Fit) -> Any:
    """Equal for fits of one variant to regions of one form, with or without the casts at their edges."""
    without_casts = [str(node.target) for node in fit.region.nodes if not is_cast(node)]
    return variant.group, variant.index, tuple(without_casts)


def other_form(variant: OldVariant, fit: Fit) -> Fit | None:
    """The fit with another call of the old replacement's op, proven to compute the region; None without one.

    Only for a variant whose replacement computes its own search part: else the replacement itself is wrong.
    """
    nodes = tuple(node for node in variant.graph.nodes if node.op == "call_function")
    placeholders = tuple(variant.graph.find_nodes(op="placeholder"))
    own = Region(placeholders, nodes, tuple(variant.graph.output_node().all_input_nodes))
    with CalledOps() as called:
        if not exact(own, variant.replacement(variant.scalars)):
            return None
    taken, _ = take_op(fit.region, {op._schema.name.rpartition("::")[2] for op in called.ops})
    return None if taken is None else replace(fit, is_exact=True, taken=taken)


def _with_fewest_copies(fit: Fit, candidate: Callable[..., Any]) -> Fit:
    """The fit, or it with the site's own casts at its edges where fewer casts and copies are left then."""
    fits = [fit]
    for region in with_edge_casts(fit.region):
        offset = region.nodes.index(fit.region.nodes[0])
        places = {(index + offset, label): name for (index, label), name in fit.scalars.items()}
        if plausible(region, candidate) and exact(region, candidate):
            fits.append(Fit(region, places))
    return min(fits, key=lambda item: copies_added(item.region, candidate))


def _known(variant: OldVariant, alignment: Alignment) -> dict[str, Node]:
    """Argument -> graph node, for the arguments that the alignment binds."""
    placeholders = variant.graph.find_nodes(op="placeholder")
    bound = {name: alignment.bindings.get(p) for name, p in zip(variant.examples, placeholders, strict=True)}
    return {name: node for name, node in bound.items() if isinstance(node, Node) and not is_number(node)}


def _regions(variant: OldVariant, outputs: Sequence[Node], known: Mapping[str, Node]) -> Iterator[Region]:
    """Candidate regions, the likeliest first."""
    names = variant.tensors
    first = tuple(known[name] for name in names) if known.keys() >= set(names) else None
    region = None if first is None else _enclosed(first, outputs)
    if region is not None:
        yield region
    calls = sum(1 for node in variant.graph.nodes if node.op == "call_function")
    cuts = _cuts(outputs, len(names), 2 * calls + 6)
    orders = dict.fromkeys(order for cut in cuts for order in itertools.permutations(cut))
    likely = (order for order in orders if order != first and _fit(variant, order))
    regions = [region for order in likely if (region := _enclosed(order, outputs)) is not None]
    yield from sorted(regions, key=lambda region: _unlike(variant, region, known, calls))


def _cuts(outputs: Sequence[Node], width: int, limit: int) -> Iterator[tuple[Node, ...]]:
    """Sets of `width` nodes that separate the outputs from the rest of the graph, those near the outputs first.

    The last node of the front either becomes an input or is replaced by its operands, so that each cut occurs once.
    """
    order = {node: index for index, node in enumerate(outputs[0].graph.nodes)}
    queue: list[tuple[frozenset[Node], frozenset[Node], int]] = [(frozenset(outputs), frozenset(), 0)]
    for states, (front, kept, inside) in enumerate(queue):
        if states >= _MOST_STATES:
            return
        if not front:
            if len(kept) == width:
                yield tuple(sorted(kept, key=lambda node: order[node]))
            continue
        node = max(front, key=lambda item: order[item])
        rest = front - {node}
        if len(kept) < width and node not in outputs:
            queue.append((rest, kept | {node}, inside))
        if node.op == "call_function" and inside < limit:
            opened = frozenset(n for n in node.all_input_nodes if not is_number(n) and n not in kept)
            queue.append((rest | opened, kept, inside + 1))


def _fit(variant: OldVariant, order: Sequence[Node]) -> bool:
    """Whether each node can be bound to its argument: a tensor, floating and a vector if the example is."""
    for name, node in zip(variant.tensors, order, strict=True):
        value, example = node.meta.get("val"), variant.examples[name]
        if not isinstance(value, torch.Tensor) or value.is_floating_point() != example.is_floating_point():
            return False
        if (value.dim() <= 1) != (example.dim() <= 1):
            return False
    return True


def _unlike(variant: OldVariant, region: Region, known: Mapping[str, Node], calls: int) -> float:
    """How much a region differs from the pattern and from the alignment's bindings."""
    cost = 0.5 * abs(len(region.nodes) - calls) + 4.0 * len(region.leaks)
    for name, node in zip(variant.tensors, region.inputs, strict=True):
        cost += 3.0 * (region.value(node).dtype != variant.examples[name].dtype)
        cost += 2.0 * (name in known and known[name] is not node)
        cost += 0.5 * (region.value(node).dim() != variant.examples[name].dim())
    return cost


def _enclosed(inputs: Sequence[Node], outputs: Sequence[Node]) -> Region | None:
    try:
        region = enclose(inputs, outputs, limit=120)
        for node in (*inputs, *outputs):
            region.value(node)
    except MisuseError:
        return None
    return region


def _scalar_choices(variant: OldVariant, alignment: Alignment, region: Region) -> Iterator[dict[Slot, str]]:
    """The possible places of the scalars in the region: the aligned one, else that of any float literal."""
    free = [slot for slot, value in region.slots() if isinstance(value, float)]
    wanted = list(variant.scalars)
    aligned = _aligned_places(variant, alignment, region)
    written = {aligned[name]: name for name in variant.written if name in aligned}
    options = [[aligned[name]] if name in aligned else free for name in wanted]
    for chosen in itertools.islice(itertools.product(*options), 8):
        if len(set(chosen)) == len(chosen):
            yield written | dict(zip(chosen, wanted, strict=True))


def _aligned_places(variant: OldVariant, alignment: Alignment, region: Region) -> dict[str, Slot]:
    index = {node: i for i, node in enumerate(region.nodes)}
    by_value = {value: name for name, value in [*variant.written.items(), *variant.scalars.items()]}
    return {
        by_value[value]: (index[g], label)
        for p, g in alignment.pairs.items()
        for label, value in operands(p).items()
        if type(value) in (int, float)
        and value in by_value
        and g in index
        and isinstance(operands(g).get(label), int | float)
    }
