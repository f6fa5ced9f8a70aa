"""npu_swiglu and npu_geglu in place of an activated tensor times another one."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from fusionkit.identify.replacing.activation_kinds import Activation, activation_at
from fusionkit.identify.replacing.place import Place, call, factor_nodes
from fusionkit.identify.replacing.replacement import Change, Unfit
from fusionkit.identify.rules.activations import GELU, activation
from fusionkit.identify.source.values import CASTS, Value, peel, sides

_PASSED = CASTS | {"dropout"}
_SPLITS = ("chunk", "split", "tensor_split", "split_with_sizes")
JOINED = (
    "the cat copies both factors: with the weights of their two projections stacked into one at load time, one product"
    " gives them joined and the cat goes"
)
_SAME_SHAPE = "both factors need the same shape: the op splits one tensor in the middle"


@dataclass(frozen=True, slots=True)
class _Gate:
    """product = (what the activation `act` was brought into) * other; `activated`: what it is applied to."""

    product: Value
    side: int  # which factor is the activated one
    act: Value
    activated: Value
    told: Activation


def replace_gate(place: Place) -> list[Change]:
    """The change for one gate. Raises Unfit where the activation's own value is read elsewhere."""
    gate = _gate(place)
    _check_shapes(gate)
    whole = _whole(gate)
    change = None
    if whole is not None and (gate.told.kind == GELU or _order(gate) == 0):
        change = _of_whole(place, gate, whole)
    return [change or _of_parts(place, gate)]


def _gate(place: Place) -> _Gate:
    product = place.value
    if len(product.args) != 2:
        raise Unfit("the gate is no product of two")
    for side, factor in enumerate(product.args):
        act = peel(factor, _PASSED)
        found = activation(place.unit, act)
        if found is not None and act.op != "either":
            _check_only_user(place, act, factor, product)
            return _Gate(product, side, act, found[1], activation_at(place, act))
    raise Unfit("the activation depends on a branch")


def _check_only_user(place: Place, act: Value, factor: Value, product: Value) -> None:
    """Nothing but the product may read the activation's value."""
    item = factor
    while True:
        users = [user for user in place.users(item) if user is not product]
        allowed = {id(product)} | ({id(inner) for inner in _between(factor, item)})
        if any(id(user) not in allowed and user.node is not product.node for user in users):
            raise Unfit("the activated tensor is read elsewhere, too")
        if item is act:
            return
        item = item.args[0]


def _between(factor: Value, item: Value) -> list[Value]:
    found = []
    inner = factor
    while inner is not item and inner.args:
        found.append(inner)
        inner = inner.args[0]
    return found


def _check_shapes(gate: _Gate) -> None:
    for operand in (gate.activated, gate.product.args[1 - gate.side]):
        for side in sides(peel(operand, CASTS)):
            if side.op in ("unsqueeze", "expand") or (side.op == "getitem" and "None" in side.name):
                raise Unfit("a factor of the gate is broadcast: the op needs two of one shape")


def _order(gate: _Gate) -> int:
    """0 if the activated half is the first of the split, else 1."""
    return int(peel(gate.activated, CASTS).name)


def _whole(gate: _Gate) -> Value | None:
    """The split whose two halves are the two factors, unpacked as such."""
    one, other = peel(gate.activated, CASTS), peel(gate.product.args[1 - gate.side], CASTS)
    if one.op != "part" or other.op != "part" or one.args[0] is not other.args[0]:
        return None
    split = one.args[0]
    if split.op not in _SPLITS or {one.name, other.name} != {"0", "1"} or not split.args:
        return None
    return split


def _of_whole(place: Place, gate: _Gate, split: Value) -> Change | None:
    """Hand the tensor itself over where it is split in the middle, and nothing else reads the halves."""
    node = split.node
    if not isinstance(node, ast.Call):
        return None
    held = place.statements.parent(node)
    is_unpacked = (
        isinstance(held, ast.Assign) and held.value is node and isinstance(held.targets[0], ast.Tuple)
    )
    dim, sections = _split_arguments(split)
    if (
        not is_unpacked
        or dim is None
        or not isinstance(held, ast.Assign)
        or sections is None
        or not _is_half(split)
    ):
        return None
    if any(isinstance(item, ast.Starred) for item in held.targets[0].elts) or len(held.targets[0].elts) != 2:  # type: ignore[attr-defined]
        return None
    if any(not _leads_to(place, part, gate.product) for part in place.users(split)):
        return None
    if _is_cast(gate) or place.statements.common([held, gate.product.node or held])[0] is None:
        return None
    base = (
        node.func.value if isinstance(node.func, ast.Attribute) and split.name == "method" else node.args[0]
    )
    texts: dict[ast.AST, str] = {}
    if isinstance(base, ast.Name) and not _is_rewritten(place, base.id, held, gate.product.node):
        name = base.id
    else:
        name = place.fresh("gate_and_up")
        texts[held] = f"{name} = {place.text(base)}"
    fused = _call(place, gate, name, f"dim={dim}", first=_order(gate) == 0)
    texts |= place.put(gate.product.node, fused)
    parts = (held, *([gate.act.node] if gate.act.node is not None else []))
    return Change(texts, parts, conditions=gate.told.conditions, notes=gate.told.notes)


def _is_half(split: Value) -> bool:
    """Whether two parts are all of it: chunk(2), or a split whose sizes are the product's, which are equal."""
    count = split.arg(1, "chunks") or split.arg(1, "split_size_or_sections")
    return split.op != "chunk" or (count is not None and count.number() == 2)


def _split_arguments(split: Value) -> tuple[str | None, Value | None]:
    """(dim as text, sections) of a split."""
    dim = split.arg(2, "dim") or (split.kwargs or {}).get("axis")
    sections = split.arg(1, "chunks") or split.arg(1, "split_size") or split.arg(1, "split_size_or_sections")
    number = None if dim is None else dim.number()
    return ("0" if dim is None else None if number is None else str(int(number))), sections


def _leads_to(place: Place, part: Value, product: Value) -> bool:
    """Whether a half is read by nothing but the gate."""
    front, seen = [part], set[int]()
    while front:
        item = front.pop()
        if id(item) in seen or item.node is product.node:
            continue
        seen.add(id(item))
        users = place.users(item)
        if not users or len(seen) > 12:
            return False
        if item is not part and activation(place.unit, item) is None and item.op not in (*CASTS, "part"):
            return False
        front += users
    return True


def _is_cast(gate: _Gate) -> bool:
    """Whether a cast lies between the split and the product, which the tensor itself would not take."""
    factor, other = gate.product.args[gate.side], gate.product.args[1 - gate.side]
    return factor is not gate.act or gate.activated.op in CASTS or other.op in CASTS


def _is_rewritten(place: Place, name: str, held: ast.stmt, until: ast.AST | None) -> bool:
    """Whether a name is written from its split on, up to the product."""
    end = getattr(until, "lineno", 0)
    return any(
        isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and node.id == name
        and held.lineno <= node.lineno <= end
        for node in ast.walk(place.unit.node)
    )  # fmt: skip


def _of_parts(place: Place, gate: _Gate) -> Change:
    """Join the two factors, the activated one where the op wants it."""
    node = gate.product.node
    factors = factor_nodes(gate.product)
    act = gate.act.node
    if act is None:
        raise Unfit("the activation stands nowhere")
    bare = gate.told.argument
    inner = place.text(bare)
    texts: dict[ast.AST, str] = {}
    activated = place.text(factors[gate.side])
    if any(item is act for item in ast.walk(factors[gate.side])):
        activated = _without(place, factors[gate.side], act, inner)
    else:
        texts |= place.put(act, inner)
    cat = call(place.in_function("cat"), f"({activated}, {place.text(factors[1 - gate.side])})", "dim=-1")
    texts |= place.put(node, _call(place, gate, cat, "dim=-1", first=True))
    return Change(
        texts, (act,), conditions=gate.told.conditions, notes=(*gate.told.notes, _SAME_SHAPE, JOINED)
    )


def _without(place: Place, factor: ast.expr, act: ast.AST, inner: str) -> str:
    """The text of a factor with the activation taken off."""
    if factor is act:
        return inner
    whole, part = place.statements.source(factor), place.statements.source(act)
    if whole.count(part) != 1:
        raise Unfit("the activation cannot be told apart in the text")
    return whole.replace(part, f"({inner})")


def _call(place: Place, gate: _Gate, joined: str, dim: str, first: bool) -> str:
    del place
    if gate.told.kind == GELU:
        told = ("approximate=1" if gate.told.tanh else "approximate=0", f"activate_left={first}")
        return call("torch_npu.npu_geglu", joined, dim, *told) + "[0]"
    return call("torch_npu.npu_swiglu", joined, dim)
