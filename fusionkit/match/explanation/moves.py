"""The moves of the alignment of a pattern's graph with the model's graph, and their costs.

Pairing two calls of one op is free; a one-sided node, another op, another overload or another operand order has a
cost. The cheapest alignment of the whole pattern at a site explains the miss.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from fusionkit.match.explanation.calls import Call, Calls
from fusionkit.match.explanation.composites import is_made_of, is_same_in_prims, lay_parts
from fusionkit.match.ops import FORM_OPS, packet

Node = torch.fx.Node
Obligation = tuple[Node, Node, int]  # pattern node, graph node, number of graph nodes skipped just before

LONGEST_PASS = 3

# Of the costs only the order matters: a literal is the smallest difference; a node shared on one side only and
# unrelated ops are the largest; skipping a cast is a little cheaper than skipping any other node.
LITERAL, OVERLOAD, ORDER, COMPOSITE, CAST, ONE_SIDED, OTHER_OP = 0.05, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5
SHARED, STRANGE = 1.2, 1.9
COPY = 0.8  # a clone that only the graph has: cheaper than the pattern's last cast, which stands behind it
AGAIN = 0.6  # a further cast in a row
EDGE = 0.6  # an operand that the alignment does not follow
ODD = 0.6  # an argument bound to a tensor unlike its example
CHEAPEST = 0.6  # the lowest cost of a step that does not pair two calls of one op


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

    def __init__(self, nodes: Iterable[Node], pattern: Calls, graph: Calls) -> None:
        self.pattern = pattern
        self.graph = graph
        self._below: dict[tuple[Node, int], frozenset[str]] = {}
        # For each of the pattern's `nodes`: the calls that it depends on, with itself, and the arguments used once.
        self._members: dict[Node, frozenset[Node]] = {}
        for node in nodes:
            own = [node] if pattern[node].is_call or len(node.users) == 1 else []
            below = [self._members[operand] for _, operand in pattern[node].nodes]
            self._members[node] = frozenset(own).union(*below)
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
        if key not in self._made:
            ours, theirs = self.pattern[p], self.graph[g]
            same = p.op != "get_attr" and theirs.is_call and ours.packet == theirs.packet
            self._made[key] = tuple(self._paired(p, g, ours, theirs)) if same else ()
        return self._made[key]

    def _deviating(self, p: Node, g: Node, passed: int) -> tuple[Move, ...]:
        """Every other move; none is cheaper than CHEAPEST."""
        key = (p, g, passed)
        if key not in self._made:
            self._made[key] = tuple(self._others(p, g, passed))
        return self._made[key]

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
        leaves = {label: node for label, node in ours.nodes if node.op in ("placeholder", "get_attr")}
        fixed = [(node, theirs.literals[label]) for label, node in leaves.items() if label in theirs.literals]
        constants = tuple((node, value) for node, value in fixed if node.op == "placeholder")
        own_tensors = [node for node, _ in fixed if node.op == "get_attr"]
        a = [node for label, node in ours.nodes if label not in leaves or label not in theirs.literals]
        b = [node for label, node in theirs.nodes if label not in wild]
        kind = "order" if len(a) == len(b) else "operands"
        for extra, order, pairs in _orders(a, b):
            steps = [Step(kind, p, g, order)] if extra else []
            steps += [Step("held", one, g) for one in own_tensors]
            then = tuple((one, other, 0) for one, other in pairs)
            lost = len(own_tensors) + self._dropped(a, [one for one, _ in pairs])
            yield Move(cost + extra + ONE_SIDED * lost, tuple(steps), then, (p, g), constants)

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
            then = tuple((operand, node, 0) for operand, node in laid.operands)
            yield Move(COMPOSITE, (Step("composite", p, g, members=laid.members),), then, (p, g))
        whole = g.all_input_nodes[0] if packet(g) == "operator.getitem" and g.args[1] == 0 else g
        laid = lay_parts(whole, p)
        if laid is not None:
            then = tuple((node, operand, 0) for operand, node in laid.operands)
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
        cost = ONE_SIDED if not theirs.is_cast else AGAIN if passed else CAST
        if theirs.packet == "aten.clone":
            cost = COPY
        cost += 0.1 * (len(theirs.nodes) - 1) + 0.03 * any(user.op == "output" for user in p.users)
        for _, below in theirs.nodes:
            if p.op == "placeholder" or wanted & self._below_of(below, LONGEST_PASS - passed):
                yield Move(cost, (Step("graph_only", p, g),), ((p, below, passed + 1),))

    def pass_pattern(self, p: Node, g: Node, theirs: Call) -> Iterator[Move]:
        """Moves that skip the pattern's node `p`: one of its operands is aligned with `g`."""
        ours = self.pattern[p]
        for _, below in ours.nodes:
            inside = {self.pattern[node].packet for node in self._members[below]}
            if below.op == "placeholder" or not theirs.is_call or theirs.packet in inside:
                cost = (CAST if ours.is_cast else ONE_SIDED) + EDGE * (len(ours.nodes) - 1)
                cost += ONE_SIDED * self._dropped([node for _, node in ours.nodes], [below])
                yield Move(cost, (Step("pattern_only", p, g),), ((below, g, 0),))
        if not ours.nodes or not theirs.is_call:
            yield Move(ONE_SIDED * len(self._members[p]), (Step("pattern_only", p, g),), ())

    def _dropped(self, operands: Sequence[Node], kept: Sequence[Node]) -> int:
        """Number of calls and arguments of the pattern that are lost if of `operands` only `kept` are followed."""
        lost = frozenset().union(*(self._members[node] for node in operands if node not in kept))
        return len(lost.difference(*(self._members[node] for node in kept)))

    def _below_of(self, g: Node, depth: int) -> frozenset[str]:
        """Packets of `g` and the graph's nodes that it depends on, `depth` levels deep."""
        key = (g, depth)
        if key not in self._below:
            deeper = [self._below_of(node, depth - 1) for _, node in self.graph[g].nodes] if depth > 0 else []
            self._below[key] = frozenset([self.graph[g].packet]).union(*deeper)
        return self._below[key]


def _stands_for(ours: Call, theirs: Call) -> bool:
    """Whether both are functions of one tensor and the pattern's is the first op of its chain."""
    forms = {ours.packet, theirs.packet} & FORM_OPS
    return len(ours.nodes) == len(theirs.nodes) == 1 and not forms and ours.nodes[0][1].op == "placeholder"


def _orders(
    a: Sequence[Node], b: Sequence[Node]
) -> Iterator[tuple[float, tuple[int, ...], list[tuple[Node, Node]]]]:
    """Ways to pair the operands `a` and `b`: extra cost, index in the longer list for each of the other, pairs."""
    if len(a) == len(b):
        straight = tuple(range(len(a)))
        for order in itertools.permutations(straight) if 2 <= len(a) <= 3 else [straight]:
            yield ORDER * (order != straight), order, [(a[i], b[place]) for i, place in enumerate(order)]
        return
    short, long = sorted((a, b), key=len)
    missing = ONE_SIDED * (len(long) - len(short))
    for places in itertools.islice(itertools.combinations(range(len(long)), len(short)), 12):
        chosen = [long[place] for place in places]
        yield (
            missing,
            places,
            list(zip(chosen, short, strict=True) if long is a else zip(short, chosen, strict=True)),
        )
