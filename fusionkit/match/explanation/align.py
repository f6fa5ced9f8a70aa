"""Tolerant alignment: the cheapest mapping of a pattern's graph to the model's graph at one site.

torch's matcher stops at the first difference; this search continues and finds every difference of a site. Whether
a pattern matches is decided by torch's matcher alone; the alignment says how the two graphs differ at a miss.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.fx

from fusionkit.match.explanation.calls import Calls
from fusionkit.match.explanation.moves import ODD, SHARED, STRANGE, Move, Moves, Node, Obligation, Step

_MOST_STATES = 2000


@dataclass(slots=True)
class Alignment:
    """`pairs`: pattern node -> graph node; `bindings`: pattern argument -> graph node or literal; `steps`: deviations.

    `roots`: each output of the pattern with its graph node. `cost`: for comparing alignments only.
    """

    cost: float
    roots: tuple[tuple[Node, Node], ...]
    pairs: dict[Node, Node] = field(default_factory=dict)
    bindings: dict[Node, Any] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()

    @property
    def graph_nodes(self) -> tuple[Node, ...]:
        """Every graph node of the alignment, in the pattern's order, then those that only the graph has."""
        own = [step.g for step in self.steps if step.kind == "graph_only" and step.g is not None]
        own += [node for step in self.steps for node in step.members if step.p not in step.members]
        return tuple(dict.fromkeys([*self.pairs.values(), *own]))


class _State(NamedTuple):
    cost: float
    open: tuple[Obligation, ...]
    pairs: Mapping[Node, Node]
    bindings: Mapping[Node, Any]
    steps: tuple[Step, ...]


class Aligner:
    """Aligns one pattern's graph with sites of one model's graph; calls and bounds are cached between calls."""

    def __init__(self, pattern: torch.fx.Graph, graph: Calls, stand_ins: Sequence[float] = ()) -> None:
        self.outputs = outputs_of(pattern)
        self.size = sum(1 for node in pattern.nodes if node.op == "call_function")
        self._calls = Calls(stand_ins)
        self._graph = graph
        self._moves = Moves(pattern.nodes, self._calls, graph)
        self._heights: dict[Node, int] = {}
        for node in reversed(list(pattern.nodes)):
            above = [self._heights[user] + 1 for user in node.users if user in self._heights]
            self._heights[node] = max(above, default=0)

    @property
    def height(self) -> int:
        """The longest path, in steps, from any node to an output of the pattern."""
        return max(self._heights.values())

    def height_of(self, packet: str) -> int:
        """The longest path from a call of `packet` to an output; `height` if the pattern has no such call."""
        heights = [h for node, h in self._heights.items() if self._calls[node].packet == packet]
        return max(heights, default=self.height)

    def bound(self, root: Node, budget: float = math.inf) -> float:
        """A lower bound of the cost of an alignment with the first output at `root`; at most `budget`."""
        return self._moves.bound(self.outputs[0], root, 0, budget)

    def align(self, root: Node, limit: float = math.inf) -> Alignment | None:
        """The cheapest alignment with the pattern's first output at `root`; None if it costs `limit` or more."""
        state = self._search(_State(0.0, ((self.outputs[0], root, 0),), {}, {}, ()), limit)
        roots = [(self.outputs[0], root)]
        for output in self.outputs[1:]:
            if state is None:
                return None
            place = self._place_of(output, state)
            if place is None:
                continue
            roots.append((output, place))
            state = self._search(state._replace(open=((output, place, 0),)), limit)
        if state is None:
            return None
        steps = tuple(dict.fromkeys(state.steps))
        return Alignment(state.cost, tuple(roots), dict(state.pairs), dict(state.bindings), steps)

    def _place_of(self, output: Node, state: _State) -> Node | None:
        """The graph node for a further output: the user of its operands' partners with the lowest bound."""
        if output in state.pairs:
            return state.pairs[output]
        below = [state.pairs.get(node) or state.bindings.get(node) for _, node in self._calls[output].nodes]
        users = [user for node in below if isinstance(node, Node) for user in node.users]
        calls = [user for user in users if user.op == "call_function"]
        return min(calls, key=lambda user: self._moves.bound(output, user), default=None)

    def _search(self, start: _State, limit: float) -> _State | None:
        order = itertools.count()
        queue = [(self._estimate(start, limit), -len(start.pairs), next(order), start)]
        for _ in range(_MOST_STATES):
            if not queue or queue[0][0] >= limit:
                return None
            state = heapq.heappop(queue)[-1]
            if not state.open:
                return state
            for follower in self._followers(state):
                worth = self._estimate(follower, limit)
                if worth < limit:
                    heapq.heappush(queue, (worth, -len(follower.pairs), next(order), follower))
        return self._greedy(heapq.heappop(queue)[-1], limit) if queue else None

    def _greedy(self, state: _State, limit: float) -> _State | None:
        """Complete a state by its cheapest follower at each step: for patterns too different for a full search."""
        while state.open:
            followers = self._followers(state)
            if not followers:
                return None
            state = min(followers, key=lambda follower: self._estimate(follower, limit))
        return state if state.cost < limit else None

    def _estimate(self, state: _State, limit: float) -> float:
        left = limit - state.cost
        bounds = (
            self._moves.bound(p, g, passed, left) for p, g, passed in state.open if p not in state.pairs
        )
        return state.cost + max(bounds, default=0.0)

    def _followers(self, state: _State) -> list[_State]:
        (p, g, passed), state = state.open[0], state._replace(open=state.open[1:])
        is_argument = p.op == "placeholder"
        known = (state.bindings if is_argument else state.pairs).get(p)
        if known is g:
            return [state]
        if known is not None:
            moves = [*self._moves.pass_graph(p, g, passed)]
            moves += [] if is_argument else self._moves.pass_pattern(p, g, self._graph[g])
            first = [self._clash(state, p, g, known)]
        elif is_argument:
            moves = [*self._moves.pass_graph(p, g, passed)] if len(p.users) > 1 else []
            cost = state.cost + (ODD if _is_odd(p, g) else 0.0)
            first = [state._replace(cost=cost, bindings={**state.bindings, p: g})]
        else:
            moves, first = [*self._moves.of(p, g, passed)], []
        return [*first, *(self._after(state, move) for move in moves)]

    def _after(self, state: _State, move: Move) -> _State:
        cost, steps, pairs, bindings = state.cost + move.cost, move.steps, state.pairs, state.bindings
        if move.pair is not None:
            p, g = move.pair
            twin = next((one for one, other in pairs.items() if other is g), None)
            if twin is not None:
                cost += SHARED if twins(twin, p) else STRANGE
                steps = (*steps, Step("shared", p, g))
            pairs = {**pairs, p: g}
        if move.constants:
            bindings = {**bindings, **dict(move.constants)}
        return _State(cost, (*move.then, *state.open), pairs, bindings, (*state.steps, *steps))

    def _clash(self, state: _State, p: Node, g: Node, known: Any) -> _State:
        """The state where the pattern uses `p` twice and the graph has `known` at the first use and `g` at the next."""
        cost = state.cost + (SHARED if isinstance(known, Node) and twins(known, g) else STRANGE)
        return state._replace(cost=cost, steps=(*state.steps, Step("shared", p, g)))


def _is_odd(p: Node, g: Node) -> bool:
    """Whether exactly one of example argument and graph node is a vector (such as a gain) or scalar."""
    ours, theirs = p.meta.get("val"), g.meta.get("val")
    if not isinstance(ours, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        return False
    return (ours.dim() <= 1) != (theirs.dim() <= 1)


def outputs_of(graph: torch.fx.Graph) -> tuple[Node, ...]:
    """The nodes that a pattern's trace returns."""
    return tuple(graph.output_node().all_input_nodes)


def twins(one: Node, other: Node) -> bool:
    """Whether two nodes compute the same: one op, the same operands."""
    return one.target == other.target and one.args == other.args and one.kwargs == other.kwargs
