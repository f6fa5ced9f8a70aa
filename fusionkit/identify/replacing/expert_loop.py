"""A loop over experts, taken apart: which names count experts and tokens, and what its statements do with them."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from fusionkit.identify.replacing.replacement import Unfit
from fusionkit.identify.replacing.statements import names

_PRODUCTS = ("linear",)


@dataclass(frozen=True, slots=True)
class ExpertLoop:
    """`node`: the loop. `expert`, `token`, `slot`: its names for the expert, its tokens, and their places of the top k.

    `body`: the statements that compute, the last one gathers. `spare`: whether an index beyond the experts is passed over.
    `routing`: the expression of each token's experts [T, K]. `into`: the name that is gathered into.
    """

    node: ast.For
    expert: str
    token: str
    slot: str
    body: tuple[ast.stmt, ...]
    gather: ast.Call
    spare: bool
    routing: ast.expr
    into: str


def expert_loop(function: ast.AST, node: ast.AST) -> ExpertLoop:
    """The loop that `node` stands in. Raises Unfit where it is not one over the experts that were hit."""
    loop = next(
        (item for item in ast.walk(function) if isinstance(item, ast.For) and _is_in(node, item)), None
    )
    if loop is None:
        raise Unfit("the experts are not computed in a loop over them")
    if not isinstance(loop.target, ast.Name) or loop.orelse:
        raise Unfit("the loop over experts has several variables")
    expert, spare, chosen = loop.target.id, False, None
    body: list[ast.stmt] = []
    for item in loop.body:
        if _renames(item, expert) or _skips_empty(item):
            continue
        if _skips_spare(item, expert):
            spare = True
        elif (found := _chosen(item, expert)) is not None:
            chosen = found
        else:
            body.append(item)
    if chosen is None:
        raise Unfit("the tokens of an expert are not chosen by torch.where over a mask")
    slot, token, mask = chosen
    gather = _gathers(body[-1], token) if body else None
    if (
        gather is None
        or not isinstance(gather.func, ast.Attribute)
        or not isinstance(gather.func.value, ast.Name)
    ):
        raise Unfit("the results of the experts are not gathered by index_add_")
    routing = _routing(function, mask)
    return ExpertLoop(loop, expert, token, slot, tuple(body), gather, spare, routing, gather.func.value.id)


def _is_in(node: ast.AST, loop: ast.For) -> bool:
    place = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
    return (loop.lineno, loop.col_offset) < place and place[0] <= (loop.end_lineno or 0)


def _renames(item: ast.stmt, expert: str) -> bool:
    """expert_idx = expert_idx[0], or .item()."""
    return isinstance(item, ast.Assign) and names(item) == ({expert}, {expert})


def _skips_empty(item: ast.stmt) -> bool:
    """if token_idx.numel() == 0: continue."""
    is_skip = isinstance(item, ast.If) and len(item.body) == 1 and isinstance(item.body[0], ast.Continue)
    return is_skip and "numel() == 0" in ast.unparse(item.test)  # type: ignore[attr-defined]


def _skips_spare(item: ast.stmt, expert: str) -> bool:
    """if expert_idx == self.num_experts: continue."""
    if not isinstance(item, ast.If) or item.orelse or not isinstance(item.body[0], ast.Continue):
        return False
    test = item.test
    return (
        isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == expert
        and isinstance(test.ops[0], (ast.Eq, ast.GtE)) and "num_experts" in ast.unparse(test.comparators[0])
    )  # fmt: skip


def _chosen(item: ast.stmt, expert: str) -> tuple[str, str, str] | None:
    """(slots, tokens, mask) of `top_k_pos, token_idx = torch.where(expert_mask[expert_idx])`."""
    if isinstance(item, ast.With) and len(item.body) == 1:
        item = item.body[0]
    if (
        not isinstance(item, ast.Assign)
        or not isinstance(item.value, ast.Call)
        or not isinstance(item.targets[0], ast.Tuple)
    ):
        return None
    made, targets = item.value, item.targets[0].elts
    if not ast.unparse(made.func).endswith("torch.where") or len(made.args) != 1 or len(targets) != 2:
        return None
    held = made.args[0]
    if (
        not isinstance(held, ast.Subscript)
        or not isinstance(held.value, ast.Name)
        or ast.unparse(held.slice) != expert
    ):
        return None
    if not all(isinstance(target, ast.Name) for target in targets):
        return None
    return ast.unparse(targets[0]), ast.unparse(targets[1]), held.value.id


def _gathers(item: ast.stmt, token: str) -> ast.Call | None:
    """final.index_add_(0, token_idx, states)."""
    call = item.value if isinstance(item, ast.Expr) else None
    if (
        not isinstance(call, ast.Call)
        or not isinstance(call.func, ast.Attribute)
        or call.func.attr != "index_add_"
    ):
        return None
    return call if len(call.args) == 3 and ast.unparse(call.args[1]) == token else None


def _routing(function: ast.AST, mask: str) -> ast.expr:
    """What the mask was made of by one_hot, its axes turned to (expert, slot, token)."""
    routing, turned = None, False
    for item in ast.walk(function):
        if isinstance(item, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == mask for t in item.targets
        ):
            text = ast.unparse(item.value)
            turned = turned or "permute(2, 1, 0)" in text
            made = next((c for c in ast.walk(item.value) if isinstance(c, ast.Call)
                         and ast.unparse(c.func).endswith("one_hot")), None)  # fmt: skip
            if made is not None and made.args:
                routing = made.args[0]
    if routing is None or not turned:
        raise Unfit("the mask of the experts' tokens is not made by one_hot(...).permute(2, 1, 0)")
    return routing
