"""The differences of an alignment with their types, in the order in which torch's matcher would reach them."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

from fusionkit.match.explanation.align import Alignment, twins
from fusionkit.match.explanation.composites import is_made_of, is_same_in_prims
from fusionkit.match.explanation.moves import Node, Step
from fusionkit.match.ops import describe, is_cast, is_functionalized, op_text, operands, packet
from fusionkit.passes.keywords import decisive_keywords


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between pattern and graph; `pattern_node` or `graph_node` is None if that side has no node."""

    type: str
    pattern_node: Node | None
    graph_node: Node | None
    expected: str
    actual: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Facts besides the alignment that decide a difference's type.

    `present`: op packets of the whole graph. `stands_in`: whether a literal of the pattern matches any value.
    """

    present: Container[str]
    stands_in: Callable[[Any], bool]


def structural_differences(alignment: Alignment, around: Surroundings) -> list[Difference]:
    """Every structural difference: other ops, one-sided nodes, operand order, overload, keywords, users."""
    differences: list[Difference] = []
    steps = list(alignment.steps)
    while steps:
        group = _steps_with(steps[0], steps)
        steps = [step for step in steps if step not in group]
        differences += _of_step(group[0], alignment, around) if len(group) == 1 else [_of_group(group)]
    for p, g in alignment.pairs.items():
        if p.target != g.target and packet(p) == packet(g):
            kind = "higher_order_form" if is_functionalized(p) else "overload"
            differences.append(Difference(kind, p, g, op_text(p), op_text(g)))
        if packet(p) == packet(g):
            differences += _call_structure(p, g, around.stands_in)
    differences += _user_differences(alignment, differences)
    return _in_order(list(dict.fromkeys(differences)), alignment)


def _steps_with(first: Step, steps: Sequence[Step]) -> list[Step]:
    """`first` with the adjacent steps that are one difference with it: a composite op against its parts."""
    changed = [step for step in steps if step.kind in ("substitute", "pattern_only", "graph_only")]
    if first not in changed:
        return [first]
    reached, front = {first}, [first]
    while front:
        more = [step for step in changed if step not in reached and _touch(front[-1], step)]
        front = [*front[:-1], *more]
        reached.update(more)
    near = [step for step in changed if step in reached]
    ours, theirs = _sides(near)
    return near if is_made_of(ours, theirs) or is_made_of(theirs, ours) else [first]


def _touch(one: Step, other: Step) -> bool:
    nodes = [node for node in (one.p, one.g) if node is not None]
    near = {neighbour for node in nodes for neighbour in (node, *node.all_input_nodes, *node.users)}
    return (other.p in near and other.p.op == "call_function") or other.g in near


def _sides(group: Sequence[Step]) -> tuple[list[Node], list[Node]]:
    """The nodes of a group of deviations: those of the pattern, and those of the graph."""
    ours = dict.fromkeys(step.p for step in group if step.kind != "graph_only")
    theirs = dict.fromkeys(step.g for step in group if step.kind != "pattern_only" and step.g is not None)
    return list(ours), list(theirs)


def _of_group(group: Sequence[Step]) -> Difference:
    ours, theirs = _sides(group)
    expected, actual = (", ".join(map(describe, nodes)) for nodes in (ours, theirs))
    return Difference("decomposition", _top(ours), _top(theirs), expected, actual)


def _top(nodes: Sequence[Node]) -> Node | None:
    """The node of a group that no other one uses."""
    return next((node for node in nodes if not any(user in nodes for user in node.users)), None)


def _of_step(step: Step, alignment: Alignment, around: Surroundings) -> list[Difference]:
    p, g = step.p, step.g
    if step.kind == "substitute" and g is not None:
        return [_substituted(p, g, around)]
    if step.kind == "pattern_only":
        actual = "no cast" if is_cast(p) else _standing(g)
        kind = "dtype_path" if is_cast(p) else _foreign(p, around) or "missing_node"
        return [Difference(kind, p, g, describe(p), actual)]
    if step.kind == "graph_only" and g is not None:
        kind, expected = ("dtype_path", "no cast") if is_cast(g) else ("missing_node", "no node")
        return [Difference(kind, _consumer(p, g, alignment), g, expected, describe(g))]
    if step.kind == "composite" and g is not None:
        parts = ", ".join(describe(node) for node in step.members)
        whole = p if p not in step.members else g
        texts = (describe(p), parts) if whole is p else (parts, describe(g))
        return [Difference("decomposition", p, g, *texts)]
    if step.kind == "order" and g is not None:
        sides = [[value for value in operands(n).values() if isinstance(value, Node)] for n in (p, g)]
        expected, actual = (f"({', '.join(map(describe, nodes))})" for nodes in sides)
        if expected == actual:
            expected, actual = (f"({', '.join(node.name for node in nodes)})" for nodes in sides)
        return [Difference("argument_order", p, g, expected, actual)]
    if step.kind == "held":
        actual = "" if g is None else f"{g.op} {g.name}"
        return [Difference("parameter_source", p, g, f"tensor {p.target} held by the pattern", actual)]
    if step.kind == "shared":
        return [_shared(p, g, alignment)]
    ours, theirs = len(p.all_input_nodes), 0 if g is None else len(g.all_input_nodes)
    return [Difference("missing_node", p, g, f"{ours} tensor operands", f"{theirs} tensor operands")]


def _substituted(p: Node, g: Node, around: Surroundings) -> Difference:
    expected, actual = describe(p), describe(g)
    if (is_cast(p) and is_cast(g)) or is_same_in_prims(p, g):
        return Difference("decomposition", p, g, str(p.target), str(g.target))
    if is_cast(p) != is_cast(g) and _space(p) == _space(g):
        return Difference("dtype_path" if is_cast(p) else "missing_node", p, g, expected, actual)
    if _space(p) != _space(g) or is_made_of([p], [g]) or is_made_of([g], [p]):
        return Difference("decomposition", p, g, expected, actual)
    return Difference(_foreign(p, around) or "missing_node", p, g, expected, actual)


def _foreign(p: Node, around: Surroundings) -> str | None:
    """The type for an op that the graph lacks entirely; the matcher starts only at ops of the pattern's end."""
    if packet(p) in around.present:
        return None
    if _space(p) not in ("aten", "operator"):
        return "decomposition"
    return "root_not_indexed" if _is_output(p) else None


def _shared(p: Node, g: Node | None, alignment: Alignment) -> Difference:
    partner = alignment.pairs.get(p) or alignment.bindings.get(p)
    actual = "" if g is None else g.name
    if partner is not g and isinstance(partner, Node):
        return Difference("shared_node", p, g, f"one node, {p.name}", f"two, {partner.name} and {actual}")
    twin = next((one for one, other in alignment.pairs.items() if other is g and one is not p), p)
    return Difference("shared_node", p, g, f"two nodes, {twin.name} and {p.name}", f"one, {actual}")


def _call_structure(p: Node, g: Node, stands_in: Callable[[Any], bool]) -> list[Difference]:
    """Literal arguments that only one side has; of the graph's extra keywords those that change the result."""
    ours, theirs = operands(p), operands(g)
    lacking = {label: value for label, value in ours.items() if label not in theirs and not stands_in(value)}
    more = {label: value for label, value in theirs.items() if label not in ours and label not in g.kwargs}
    if p.target == g.target and not p.meta.get("any_keywords"):
        more |= decisive_keywords(g, p.kwargs)
    texts = [(label, f"{label}={_short(value)}", "absent", value) for label, value in lacking.items()]
    texts += [(label, f"no {label}", f"{label}={_short(value)}", value) for label, value in more.items()]
    return [
        Difference("kwargs_structure", p, g, expected, actual, label)
        for label, expected, actual, value in texts
        if not isinstance(value, Node)
    ]


def _user_differences(alignment: Alignment, differences: Sequence[Difference]) -> list[Difference]:
    """Inner nodes with users outside the pattern, unless another difference explains those users."""
    taken = set(alignment.graph_nodes)
    explained = {difference.graph_node for difference in differences}
    extra = []
    for p, g in alignment.pairs.items():
        if _is_output(p) or p.meta.get("many_users") or len(g.users) <= len(p.users):
            continue
        outside = [user for user in g.users if user not in taken and user not in explained]
        if not outside or any(twins(user, node) for user in outside for node in taken):
            continue
        if any(d.type in ("decomposition", "missing_node") and d.graph_node in g.users for d in differences):
            continue
        names = ", ".join(user.name for user in outside)
        extra.append(Difference("extra_user", p, g, f"{len(p.users)} users", f"also used by {names}"))
    return extra


def _is_output(p: Node) -> bool:
    return any(user.op == "output" for user in p.users)


def _in_order(differences: list[Difference], alignment: Alignment) -> list[Difference]:
    """The differences from the pattern's end upwards, as torch's matcher proceeds; extra users come last."""
    pattern = alignment.roots[0][0].graph
    place = {node: index for index, node in enumerate(reversed(pattern.nodes))}
    return sorted(differences, key=lambda d: (d.type == "extra_user", place.get(d.pattern_node, len(place))))


def _consumer(p: Node, g: Node, alignment: Alignment) -> Node:
    """The pattern node that uses `p` and whose partner uses the graph-only node `g`; `p` if there is none."""
    for one, other in alignment.pairs.items():
        if other in g.users and p in one.all_input_nodes:
            return one
    return p


def _standing(g: Node | None) -> str:
    if g is None:
        return "nothing"
    return f"{describe(g)} directly" if g.op == "call_function" else f"{g.op} {g.name}"


def _short(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _space(node: Node) -> str:
    return packet(node).split(".")[0] if node.op == "call_function" else "aten"
