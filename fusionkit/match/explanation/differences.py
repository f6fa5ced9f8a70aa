"""The differences of an alignment with their types, in the order in which torch's matcher would reach them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fusionkit.match.explanation.align import Alignment, twins
from fusionkit.match.explanation.composites import is_made_of, is_same_in_prims
from fusionkit.match.explanation.moves import Node, Step
from fusionkit.match.ops import describe, is_cast, operands, packet


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
    `outputs`: the pattern's output nodes.
    """

    present: frozenset[str]
    stands_in: Callable[[Any], bool]
    outputs: tuple[Node, ...]


def structural_differences(alignment: Alignment, around: Surroundings) -> list[Difference]:
    """Every structural difference: other ops, one-sided nodes, operand order, overload, keywords, users."""
    differences: list[Difference] = []
    steps = list(alignment.steps)
    while steps:
        group = _steps_with(steps[0], steps)
        steps = [step for step in steps if step not in group]
        differences.extend(_of_group(group, alignment, around))
    for p, g in alignment.pairs.items():
        if p.target != g.target and packet(p) == packet(g):
            differences.append(Difference("overload", p, g, str(p.target), str(g.target)))
        if packet(p) == packet(g):
            differences.extend(_call_structure(p, g, around.stands_in))
    differences.extend(_user_differences(alignment, differences, around))
    return _in_order(list(dict.fromkeys(differences)), alignment)


def _steps_with(first: Step, steps: Sequence[Step]) -> list[Step]:
    """`first` with the adjacent steps that are one difference with it: a composite op against its parts."""
    changed = [step for step in steps if step.kind in ("substitute", "pattern_only", "graph_only")]
    if first not in changed:
        return [first]
    near = [step for step in changed if step is first or _adjacent(first, step, changed)]
    ours = list(dict.fromkeys(step.p for step in near if step.kind != "graph_only"))
    theirs = list(
        dict.fromkeys(step.g for step in near if step.kind != "pattern_only" and step.g is not None)
    )
    if is_made_of(ours, theirs) or is_made_of(theirs, ours):
        return near
    return [first]


def _adjacent(first: Step, other: Step, changed: Sequence[Step]) -> bool:
    """Whether two deviations are connected, directly or through others."""
    reached, front = {first}, [first]
    while front:
        step = front.pop()
        for candidate in changed:
            if candidate not in reached and _touch(step, candidate):
                reached.add(candidate)
                front.append(candidate)
    return other in reached


def _touch(one: Step, other: Step) -> bool:
    nodes = {one.p, one.g}
    near = {
        neighbour
        for node in nodes
        if node is not None
        for neighbour in (node, *node.all_input_nodes, *node.users)
    }
    return (other.p in near and other.p.op == "call_function") or other.g in near


def _of_group(group: Sequence[Step], alignment: Alignment, around: Surroundings) -> list[Difference]:
    if len(group) == 1:
        return _of_step(group[0], alignment, around)
    ours = list(dict.fromkeys(step.p for step in group if step.kind != "graph_only"))
    theirs = list(
        dict.fromkeys(step.g for step in group if step.kind != "pattern_only" and step.g is not None)
    )
    expected = ", ".join(describe(node) for node in ours)
    actual = ", ".join(describe(node) for node in theirs)
    return [Difference("decomposition", _top(ours), _top(theirs), expected, actual)]


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
        kind = "dtype_path" if is_cast(g) else "missing_node"
        return [
            Difference(
                kind, _consumer(p, g, alignment), g, "no cast" if is_cast(g) else "no node", describe(g)
            )
        ]
    if step.kind == "composite" and g is not None:
        parts = ", ".join(describe(node) for node in step.members)
        whole = p if p not in step.members else g
        texts = (describe(p), parts) if whole is p else (parts, describe(g))
        return [Difference("decomposition", p, g, *texts)]
    if step.kind == "order" and g is not None:
        lists = _operand_list(p), _operand_list(g)
        if lists[0] == lists[1]:
            lists = _operand_names(p), _operand_names(g)
        return [Difference("argument_order", p, g, *lists)]
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
    return "root_not_indexed" if p in around.outputs else None


def _shared(p: Node, g: Node | None, alignment: Alignment) -> Difference:
    partner = alignment.pairs.get(p) or alignment.bindings.get(p)
    actual = "" if g is None else g.name
    if partner is not g and isinstance(partner, Node):
        return Difference("shared_node", p, g, f"one node, {p.name}", f"two, {partner.name} and {actual}")
    twin = next((one for one, other in alignment.pairs.items() if other is g and one is not p), p)
    return Difference("shared_node", p, g, f"two nodes, {twin.name} and {p.name}", f"one, {actual}")


def _call_structure(p: Node, g: Node, stands_in: Callable[[Any], bool]) -> list[Difference]:
    """Literal arguments that only one side has, without the graph's extra keywords, which the matcher ignores."""
    ours, theirs = operands(p), operands(g)
    lacking = [label for label in ours if label not in theirs and not isinstance(ours[label], Node)]
    differences = [
        Difference("kwargs_structure", p, g, f"{label}={_short(ours[label])}", "absent", label)
        for label in lacking
        if not stands_in(ours[label])
    ]
    more = [
        label
        for label in theirs
        if label not in ours and label not in g.kwargs and not isinstance(theirs[label], Node)
    ]
    differences += [
        Difference("kwargs_structure", p, g, f"no {label}", f"{label}={_short(theirs[label])}", label)
        for label in more
    ]
    return differences


def _user_differences(
    alignment: Alignment, differences: Sequence[Difference], around: Surroundings
) -> list[Difference]:
    """Inner nodes with users outside the pattern, unless another difference explains those users."""
    taken = set(alignment.graph_nodes)
    explained = {difference.graph_node for difference in differences}
    extra = []
    for p, g in alignment.pairs.items():
        if p in around.outputs or p.meta.get("many_users") or len(g.users) == len(p.users):
            continue
        outside = [user for user in g.users if user not in taken and user not in explained]
        if len(g.users) <= len(p.users) or not outside or any(_copies(user, taken) for user in outside):
            continue
        if any(d.type in ("decomposition", "missing_node") and d.graph_node in g.users for d in differences):
            continue
        names = ", ".join(user.name for user in outside)
        extra.append(Difference("extra_user", p, g, f"{len(p.users)} users", f"also used by {names}"))
    return extra


def _copies(user: Node, taken: set[Node]) -> bool:
    return any(twins(user, node) for node in taken)


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


def _operand_list(node: Node) -> str:
    return f"({', '.join(describe(operand) for operand in _nodes_of(node))})"


def _operand_names(node: Node) -> str:
    return f"({', '.join(operand.name for operand in _nodes_of(node))})"


def _nodes_of(node: Node) -> list[Node]:
    return [value for value in operands(node).values() if isinstance(value, Node)]


def _standing(g: Node | None) -> str:
    if g is None:
        return "nothing"
    return f"{describe(g)} directly" if g.op == "call_function" else f"{g.op} {g.name}"


def _short(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _space(node: Node) -> str:
    return packet(node).split(".")[0] if node.op == "call_function" else "aten"
