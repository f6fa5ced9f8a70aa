"""The moves of the alignment of a pattern's graph with the model's graph, and their costs.

Pairing two calls of one op is free; a one-sided node, another op, another overload or another operand order has a
cost. The cheapest alignment of the whole pattern at a site explains the miss.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from fusionkit.match.explanation.calls import Call, Calls
from fusionkit.match.explanation.composites import is_made_of, is_same_in_prims, lay_parts
from fusionkit.match.explanation.costs import (
    AGAIN,
    CAST,
    CHEAPEST,
    COMPOSITE,
    EDGE,
    LITERAL,
    ONE_SIDED,
    OTHER_OP,
    OVERLOAD,
)  # fmt: skip
from fusionkit.match.explanation.operand_orders import orders
from fusionkit.match.ops import FORM_OPS, packet

Node = torch.fx.Node
Obligation = tuple[Node, Node, int]  # pattern node, graph node, number of graph nodes skipped just before

LONGEST_PASS = 3


@dataclass(frozen=True, slots=True)
class Step:
    """One deviation. `kind`: substitute, pattern_only, graph_only, order, shared, held, operands or composite.

    `members`: the parts on one side of the composite op on the other.
    """

    kind: str
    p: Node
    g: Node | None
    order: tuple[int, ...] = ()
    members: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """One way to resolve an obligation: cost, deviations, new obligations, and the new pair of nodes.

    `constants`: pattern placeholders bound to a literal of the graph.
    """

    cost: float
    steps: tuple[Step, ...]
    then: tuple[Obligation, ...]
    pair: tuple[Node, Node] | None = None
    constants: tuple[tuple[Node, Any], ...] = ()


class Moves:
    """All moves between one pattern's graph and one model's graph."""

    def __init__(self, pattern: Calls, graph: Calls) -> None:
        self.pattern = pattern
        self.graph = graph
        self._below: dict[tuple[Node, int], frozenset[str]] = {}
        self._inside: dict[Node, frozenset[str]] = {}
        self._members: dict[Node, frozenset[Node]] = {}
        self._cheapest: dict[Obligation, tuple[float, bool]] = {}
        self._made: dict[Obligation, tuple[Move, ...]] = {}

    def of(self, p: Node, g: Node, passed: int) -> tuple[Move, ...]:
        """Every move for an unpaired call of the pattern."""
        return (*self._fitting(p, g), *self._deviating(p, g, passed))

    def bound(self, p: Node, g: Node, passed: int = 0, budget: float = math.inf) -> float:
        """A lower bound of the cost of aligning `p` and its operands with `g` and its operands; at most `budget`."""
        if p.op == "placeholder" or budget <= 0.0:
            return 0.0
        key = (p, g, passed)
        known, exact = self._cheapest.get(key, (0.0, False))
        if exact or known >= budget:
            return known
        best, exact = self._cheapest_of(self._fitting(p, g), budget)
        if best > CHEAPEST:
            other, also = self._cheapest_of(self._deviating(p, g, passed), best)
            best, exact = (other, True) if also else (best, exact)
        self._cheapest[key] = (best, exact)
        return best

    def _cheapest_of(self, moves: Sequence[Move], budget: float) -> tuple[float, bool]:
        """The lowest cost of `moves`, and whether it is below `budget` and therefore exact."""
        best, exact = budget, False
        for move in moves:
            cost = move.cost
            for obligation in move.then:
                if cost >= best:
                    break
                cost = max(cost, move.cost + self.bound(*obligation, best - move.cost))
            if cost < best:
                best, exact = cost, True
        return best, exact

    def _fitting(self, p: Node, g: Node) -> tuple[Move, ...]:
        """Moves that pair two calls of one op."""
        key = (p, g, -1)
        known = self._made.get(key)
        if known is None:
            ours, theirs = self.pattern[p], self.graph[g]
            same = p.op != "get_attr" and theirs.is_call and ours.packet == theirs.packet
            known = self._made[key] = tuple(self._paired(p, g, ours, theirs)) if same else ()
        return known

    def _deviating(self, p: Node, g: Node, passed: int) -> tuple[Move, ...]:
        """Every other move; none is cheaper than CHEAPEST."""
        key = (p, g, passed)
        known = self._made.get(key)
        if known is None:
            known = self._made[key] = tuple(self._others(p, g, passed))
        return known

    def _others(self, p: Node, g: Node, passed: int) -> Iterator[Move]:
        ours, theirs = self.pattern[p], self.graph[g]
        if p.op == "get_attr":
            yield Move(ONE_SIDED, (Step("held", p, g),), ())
            return
        if theirs.is_call:
            if ours.packet != theirs.packet:
                yield from self._composed(p, g)
                yield from self._substituted(p, g, ours, theirs)
            yield from self.pass_graph(p, g, passed)
        yield from self.pass_pattern(p, g, theirs)

    def _paired(self, p: Node, g: Node, ours: Call, theirs: Call) -> Iterator[Move]:
        cost = OVERLOAD if p.target != g.target else 0.0
        cost += LITERAL * self._different_literals(ours, theirs)
        there = dict(theirs.nodes)
        wild = {label for label, value in ours.literals.items() if label in there}
        constants = tuple(
            (node, theirs.literals[label])
            for label, node in ours.nodes
            if label in theirs.literals and node.op == "placeholder"
        )
        own_tensors = [
            node for label, node in ours.nodes if label in theirs.literals and node.op == "get_attr"
        ]
        a = [
            node
            for label, node in ours.nodes
            if label not in theirs.literals or node.op not in ("placeholder", "get_attr")
        ]
        b = [node for label, node in theirs.nodes if label not in wild]
        for extra, order, pairs in orders(a, b):
            uneven = len(a) != len(b)
            kind = "operands" if uneven else "order"
            steps = ((Step(kind, p, g, order),) if extra else ()) + tuple(
                Step("held", one, g) for one in own_tensors
            )
            then = tuple((one, other, 0) for one, other in pairs)
            dropped = self._dropped(a, [one for one, _ in pairs]) if uneven else 0
            yield Move(
                cost + extra + ONE_SIDED * (dropped + len(own_tensors)), steps, then, (p, g), constants
            )

    def _different_literals(self, ours: Call, theirs: Call) -> int:
        return sum(
            1
            for label, value in ours.literals.items()
            if not self.pattern.stands_in(value)
            and (label not in theirs.literals or str(theirs.literals[label]) != str(value))
        )

    def _composed(self, p: Node, g: Node) -> Iterator[Move]:
        """Moves that pair a composite op on one side with its decomposition on the other."""
        laid = lay_parts(p, g)
        if laid is not None:
            operands = p.all_input_nodes
            then = tuple((operands[index], node, 0) for index, node in laid.operands.items())
            yield Move(COMPOSITE, (Step("composite", p, g, members=laid.members),), then, (p, g))
        whole = g.all_input_nodes[0] if packet(g) == "operator.getitem" and g.args[1] == 0 else g
        laid = lay_parts(whole, p)
        if laid is not None:
            operands = whole.all_input_nodes
            then = tuple((node, operands[index], 0) for index, node in laid.operands.items())
            yield Move(COMPOSITE, (Step("composite", p, whole, members=laid.members),), then, (p, g))

    def _substituted(self, p: Node, g: Node, ours: Call, theirs: Call) -> Iterator[Move]:
        """Moves that pair two different ops: casts, composites, or ops with operands that can be aligned."""
        count = min(len(ours.nodes), len(theirs.nodes))
        if count == 0:
            return
        if ours.is_cast and theirs.is_cast:
            cost = OVERLOAD
        elif is_same_in_prims(p, g) or is_made_of([p], [g]) or is_made_of([g], [p]):
            cost = COMPOSITE
        else:
            cost = OTHER_OP + 0.3 * abs(len(ours.nodes) - len(theirs.nodes))
            if _stands_for(ours, theirs):
                cost = CAST
        mine, other = [node for _, node in ours.nodes], [node for _, node in theirs.nodes]
        cost += ONE_SIDED * self._dropped(mine, mine[:count])
        for places in itertools.islice(itertools.permutations(range(len(other)), count), 6):
            if cost > COMPOSITE and not any(
                self._goes_on(one, other[place]) for one, place in zip(mine, places, strict=False)
            ):
                continue
            swapped = list(places) != sorted(places)
            then = tuple((mine[index], other[place], 0) for index, place in enumerate(places))
            yield Move(cost + 0.01 * places[0] + 0.3 * swapped, (Step("substitute", p, g),), then, (p, g))

    def _is_output(self, p: Node) -> bool:
        return any(user.op == "output" for user in p.users)

    def _goes_on(self, p: Node, g: Node) -> bool:
        """Whether two operands may be partners: an argument, one op, or two casts, past casts on one side."""
        ours, theirs = self.pattern[p], self.graph[g]
        if not ours.is_call or ours.packet == theirs.packet or (ours.is_cast and theirs.is_cast):
            return True
        if ours.is_cast:
            return self._goes_on(p.all_input_nodes[0], g)
        return theirs.is_cast and self._goes_on(p, g.all_input_nodes[0])

    def pass_graph(self, p: Node, g: Node, passed: int) -> Iterator[Move]:
        """Moves that skip the graph's node `g`: `p` is aligned with one of its operands."""
        theirs = self.graph[g]
        if passed >= LONGEST_PASS or not theirs.is_call:
            return
        ours = self.pattern[p]
        wanted = {ours.packet, *(self.pattern[node].packet for _, node in ours.nodes)}
        cost = (AGAIN if passed else CAST) if theirs.is_cast else ONE_SIDED
        cost += 0.1 * (len(theirs.nodes) - 1) + (0.03 if self._is_output(p) else 0.0)
        for _, below in theirs.nodes:
            if p.op == "placeholder" or wanted & self._below_of(below, LONGEST_PASS - passed):
                yield Move(cost, (Step("graph_only", p, g),), ((p, below, passed + 1),))

    def pass_pattern(self, p: Node, g: Node, theirs: Call) -> Iterator[Move]:
        """Moves that skip the pattern's node `p`: one of its operands is aligned with `g`."""
        ours = self.pattern[p]
        for _, below in ours.nodes:
            if below.op == "placeholder" or not theirs.is_call or theirs.packet in self._inside_of(below):
                cost = (CAST if ours.is_cast else ONE_SIDED) + EDGE * (len(ours.nodes) - 1)
                cost += ONE_SIDED * self._dropped([node for _, node in ours.nodes], [below])
                yield Move(cost, (Step("pattern_only", p, g),), ((below, g, 0),))
        if not ours.nodes or not theirs.is_call:
            yield Move(ONE_SIDED * len(self._calls_of(p)), (Step("pattern_only", p, g),), ())

    def _dropped(self, operands: Sequence[Node], kept: Sequence[Node]) -> int:
        """Number of calls and arguments of the pattern that are lost if of `operands` only `kept` are followed."""
        lost = frozenset().union(*(self._calls_of(node) for node in operands if node not in kept))
        return len(lost.difference(*(self._calls_of(node) for node in kept)))

    def _calls_of(self, p: Node) -> frozenset[Node]:
        """The pattern's calls that `p` depends on, with `p`, and the arguments that are used once."""
        known = self._members.get(p)
        if known is None:
            call = self.pattern[p]
            own = frozenset([p]) if call.is_call or len(p.users) == 1 else frozenset()
            known = self._members[p] = own.union(*(self._calls_of(node) for _, node in call.nodes))
        return known

    def _inside_of(self, p: Node) -> frozenset[str]:
        """Packets of `p` and the pattern's calls that it depends on."""
        known = self._inside.get(p)
        if known is None:
            call = self.pattern[p]
            packets = {call.packet} if call.is_call else set()
            for _, below in call.nodes:
                packets |= self._inside_of(below)
            known = self._inside[p] = frozenset(packets)
        return known

    def _below_of(self, g: Node, depth: int) -> frozenset[str]:
        """Packets of `g` and the graph's nodes that it depends on, `depth` levels deep."""
        key = (g, depth)
        known = self._below.get(key)
        if known is None:
            call = self.graph[g]
            packets = {call.packet}
            if depth > 0:
                for _, below in call.nodes:
                    packets |= self._below_of(below, depth - 1)
            known = self._below[key] = frozenset(packets)
        return known


def _stands_for(ours: Call, theirs: Call) -> bool:
    """Whether both are functions of one tensor and the pattern's is the first op of its chain."""
    forms = {ours.packet, theirs.packet} & FORM_OPS
    return len(ours.nodes) == len(theirs.nodes) == 1 and not forms and ours.nodes[0][1].op == "placeholder"
