"""Tolerant alignment of a pattern's graph with the model's graph around one anchor.

torch's matcher stops at the first difference. This walk goes on past it, from the anchor down to the
operands and up to the users, and lists every difference. It never decides whether a pattern matches: torch's
matcher does; this only says how the two graphs differ where it said no.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from fusionkit.match.ops import describe, is_cast, operands, packet

_DEPTH = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where pattern and graph differ; `pattern_node` or `graph_node` is None where a side has none."""

    type: str
    pattern_node: torch.fx.Node | None
    graph_node: torch.fx.Node | None
    expected: str
    actual: str
    label: str = ""


@dataclass(slots=True)
class Alignment:
    """Which pattern node stands for which graph node, what each argument is bound to, and the differences."""

    pairs: dict[torch.fx.Node, torch.fx.Node] = field(default_factory=dict)
    bindings: dict[torch.fx.Node, Any] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    literals: list[tuple[torch.fx.Node, torch.fx.Node, str, Any, Any]] = field(default_factory=list)


def align(pattern_anchor: torch.fx.Node, graph_anchor: torch.fx.Node) -> Alignment:
    """Align the pattern around `pattern_anchor` with the graph around `graph_anchor` (same op packet)."""
    walk = _Walk()
    walk.pair(pattern_anchor, graph_anchor)
    while walk.upward:
        walk.users(walk.upward.pop(0))
    walk.check_users()
    return walk.found


class _Walk:
    def __init__(self) -> None:
        self.found = Alignment()
        self.upward: list[torch.fx.Node] = []

    def differ(
        self,
        kind: str,
        p: torch.fx.Node | None,
        g: torch.fx.Node | None,
        expected: str,
        actual: str,
        label: str = "",
    ) -> None:
        difference = Difference(kind, p, g, expected, actual, label)
        if difference not in self.found.differences:
            self.found.differences.append(difference)

    def pair(self, p: torch.fx.Node, g: torch.fx.Node) -> None:
        """`p` stands for `g`: compare overload and operands, go on to both sides."""
        if p in self.found.pairs:
            if self.found.pairs[p] in g.all_input_nodes:
                self.differ("missing_node", p, g, f"{describe(p)} directly", f"{describe(g)} in between")
            elif self.found.pairs[p] is not g:
                self.differ("shared_node", p, g, f"one node, {self.found.pairs[p].name}", g.name)
            return
        self.found.pairs[p] = g
        if p.target != g.target:
            self.differ("overload", p, g, str(p.target), str(g.target))
        self.compare_operands(p, g)
        self.upward.append(p)

    def compare_operands(self, p: torch.fx.Node, g: torch.fx.Node) -> None:
        ours, theirs = operands(p), operands(g)
        nodes_p = [(label, value) for label, value in ours.items() if isinstance(value, torch.fx.Node)]
        nodes_g = [(label, value) for label, value in theirs.items() if isinstance(value, torch.fx.Node)]
        for label, value in ours.items():
            if isinstance(value, torch.fx.Node):
                continue
            if label not in theirs:
                self.differ("kwargs_structure", p, g, f"{label}={value}", "absent", label)
            elif isinstance(theirs[label], torch.fx.Node):
                self.differ("scalar_literal", p, g, f"{label}={value}", f"tensor {theirs[label].name}", label)
            else:
                self.found.literals.append((p, g, label, value, theirs[label]))
        missing = [label for label in theirs if label not in ours and label not in g.kwargs]
        for label in missing:
            if not isinstance(theirs[label], torch.fx.Node):
                self.differ("kwargs_structure", p, g, f"no {label}", f"{label}={theirs[label]}", label)
        self.compare_nodes(p, g, nodes_p, nodes_g)

    def compare_nodes(
        self,
        p: torch.fx.Node,
        g: torch.fx.Node,
        ours: list[tuple[str, torch.fx.Node]],
        theirs: list[tuple[str, torch.fx.Node]],
    ) -> None:
        """Operands that are nodes, in the order that fits best; another order than written is a difference."""
        count = min(len(ours), len(theirs))
        if len(ours) != len(theirs):
            self.differ(
                "missing_node", p, g, f"{len(ours)} tensor operands", f"{len(theirs)} tensor operands"
            )
        order = best_order([node for _, node in ours], [node for _, node in theirs], self.found)
        if order != tuple(range(count)):
            self.differ(
                "argument_order",
                p,
                g,
                f"({', '.join(describe(node) for _, node in ours)})",
                f"({', '.join(describe(node) for _, node in theirs)})",
            )
        for index, position in enumerate(order):
            self.child(ours[index][1], theirs[position][1])

    def child(self, p: torch.fx.Node, g: torch.fx.Node) -> None:
        """Operand `p` of the pattern against operand `g` of the graph."""
        if p.op in ("placeholder", "get_attr"):
            self.bind(p, g)
        elif packet(p) == packet(g):
            self.pair(p, g)
        else:
            self.bridge(p, g)

    def bind(self, p: torch.fx.Node, g: torch.fx.Node) -> None:
        if p.op == "get_attr":
            self.differ(
                "parameter_source", p, g, f"tensor {p.target} held by the pattern", f"argument {g.name}"
            )
            return
        bound = self.found.bindings.setdefault(p, g)
        if bound is not g:
            self.differ("shared_node", p, g, f"argument {p.target} twice: {bound.name}", g.name)

    def bridge(self, p: torch.fx.Node, g: torch.fx.Node) -> None:
        """Different ops: decide which side has a node too many, and go on behind it."""
        if is_cast(p) and is_cast(g):
            self.differ("decomposition", p, g, str(p.target), str(g.target))
            self.found.pairs.setdefault(p, g)
            self.child(_first(p), _first(g))
        elif is_cast(g):
            self.differ("dtype_path", p, g, "no cast", describe(g))
            self.child(p, _first(g))
        elif is_cast(p):
            self.differ("dtype_path", p, g, describe(p), "no cast")
            self.child(_first(p), g)
        elif (inner := _below(g, packet(p))) is not None:
            self.differ("missing_node", p, g, f"{packet(p)} directly", f"{describe(g)} in between")
            self.child(p, inner)
        elif (inner := _below(p, packet(g))) is not None:
            self.differ("missing_node", p, g, f"{describe(p)} in between", f"{packet(g)} directly")
            self.child(inner, g)
        else:
            kind = "decomposition" if _namespace(p) != _namespace(g) else "missing_node"
            self.differ(
                kind, p, g, describe(p), describe(g) if g.op == "call_function" else f"{g.op} {g.name}"
            )

    def users(self, p: torch.fx.Node) -> None:
        """Each user of `p` in the pattern against the users of its node in the graph."""
        g = self.found.pairs[p]
        for user in p.users:
            if user.op == "output" or user in self.found.pairs:
                continue
            taken = set(self.found.pairs.values())
            free = [other for other in g.users if other not in taken]
            same = [other for other in free if packet(other) == packet(user)]
            if same:
                self.pair(user, max(same, key=lambda other: similarity(user, other, self.found)))
                continue
            self.bridge_user(user, g, free)

    def bridge_user(self, user: torch.fx.Node, g: torch.fx.Node, free: list[torch.fx.Node]) -> None:
        steps = [self._skip_pattern_node, self._skip_graph_node]
        if not is_cast(user):
            steps.reverse()
        if any(step(user, free) for step in steps):
            return
        seen = ", ".join(describe(node) for node in free) or "no further user"
        twins = [node for node in free if is_cast(node) and is_cast(user)]
        kind = "decomposition" if twins else "missing_node"
        self.differ(kind, user, twins[0] if twins else g, describe(user), seen)

    def _skip_graph_node(self, user: torch.fx.Node, free: list[torch.fx.Node]) -> bool:
        """The graph has a node between the pair and the node that stands for `user`."""
        for other in free:
            beyond = [node for node in other.users if packet(node) == packet(user)]
            if beyond:
                self.pair(user, beyond[0])  # comparing its operands finds what lies in between
                return True
        return False

    def _skip_pattern_node(self, user: torch.fx.Node, free: list[torch.fx.Node]) -> bool:
        """The pattern has `user` where the graph goes on at once to what follows it."""
        for after in user.users:
            same = [node for node in free if packet(node) == packet(after)]
            if same:
                self.pair(after, same[0])  # comparing its operands finds what is absent
                return True
        return False

    def check_users(self) -> None:
        """Inner nodes that are used outside the pattern too."""
        for p, g in self.found.pairs.items():
            inner = [user for user in p.users if user.op != "output"]
            if inner and len(inner) == len(p.users) and len(g.users) > len(p.users):
                others = [user.name for user in g.users if user not in self.found.pairs.values()]
                if others and not any(d.graph_node in g.users for d in self.found.differences):
                    self.differ(
                        "extra_user", p, g, f"{len(p.users)} users", f"also used by {', '.join(others)}"
                    )


def best_order(ours: list[torch.fx.Node], theirs: list[torch.fx.Node], found: Alignment) -> tuple[int, ...]:
    """Position in `theirs` for each of `ours`; the written order wins ties."""
    count = min(len(ours), len(theirs))
    identity = tuple(range(count))
    if not 2 <= count <= 4 or len(ours) != len(theirs):
        return identity

    def value(order: tuple[int, ...]) -> float:
        return sum(similarity(ours[i], theirs[j], found) for i, j in enumerate(order))

    best = max(itertools.permutations(range(count)), key=value)
    return best if value(best) > value(identity) + 0.4 else identity


def similarity(p: torch.fx.Node, g: torch.fx.Node, found: Alignment, depth: int = _DEPTH) -> float:
    """How alike two operands look, a few levels deep."""
    if found.pairs.get(p) is g:
        return 3.0
    if p.op == "placeholder":
        bound = found.bindings.get(p)
        return 0.3 if bound is None else (1.0 if bound is g else -1.0)
    if p.op != "call_function" or g.op != "call_function":
        return 0.0
    if packet(p) == packet(g):
        if depth == 0:
            return 1.0
        pairs = zip(p.all_input_nodes, g.all_input_nodes, strict=False)
        return 1.0 + 0.5 * max((similarity(a, b, found, depth - 1) for a, b in pairs), default=0.0)
    if depth and is_cast(g) and not is_cast(p):
        return 0.5 * similarity(p, _first(g), found, depth - 1)
    if depth and is_cast(p) and not is_cast(g):
        return 0.5 * similarity(_first(p), g, found, depth - 1)
    return 0.0


def _first(node: torch.fx.Node) -> torch.fx.Node:
    return node.all_input_nodes[0]


def _below(node: torch.fx.Node, wanted: str) -> torch.fx.Node | None:
    """An operand of `node`, at most two levels down, with the wanted op packet."""
    for operand in node.all_input_nodes:
        if operand.op == "call_function" and packet(operand) == wanted:
            return operand
    for operand in node.all_input_nodes:
        for inner in operand.all_input_nodes:
            if inner.op == "call_function" and packet(inner) == wanted:
                return inner
    return None


def _namespace(node: torch.fx.Node) -> str:
    return packet(node).split(".")[0] if node.op == "call_function" else "aten"
