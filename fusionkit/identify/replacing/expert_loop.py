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
    `routing`: the expression of each token's experts [T, K]. `into`: the name that is gathered into. `count`: how many
    experts are asked for one by one, as source; "" where the mask is made of those that exist.
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
    count: str = ""


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
        raise Unfit(
            "the tokens of an expert are not chosen by torch.where over a mask, or where its number is routed to"
        )
    slot, token, mask = chosen
    gather = _gathers(body[-1], token) if body else None
    if (
        gather is None
        or not isinstance(gather.func, ast.Attribute)
        or not isinstance(gather.func.value, ast.Name)
    ):
        raise Unfit("the results of the experts are not gathered by index_add_")
    count = _counted(loop) if isinstance(mask, ast.expr) else ""
    routing = mask if isinstance(mask, ast.expr) else _routing(function, mask)
    into = gather.func.value.id
    return ExpertLoop(
        loop, expert, token, slot, tuple(body), gather, spare or bool(count), routing, into, count
    )


def check_start(function: ast.AST, loop: ExpertLoop, tokens: str) -> None:
    """Raise Unfit unless results are gathered into zeros of the tokens' dtype: the fused branch starts from nothing."""
    made = [
        item.value
        for item in ast.walk(function)
        if isinstance(item, ast.Assign)
        and item.lineno < loop.node.lineno
        and any(isinstance(target, ast.Name) and target.id == loop.into for target in item.targets)
    ]
    last = max(made, key=lambda node: node.lineno, default=None)
    called = ast.unparse(last.func).rpartition(".")[2] if isinstance(last, ast.Call) else ""
    if not isinstance(last, ast.Call) or called not in ("zeros", "zeros_like", "new_zeros"):
        raise Unfit(f"the results of the experts are added to {loop.into}, which is not seen to be zeros")
    dtypes = [ast.unparse(item.value) for item in last.keywords if item.arg == "dtype"]
    of = ast.unparse(last.args[0] if called == "zeros_like" and last.args else last.func).removesuffix(
        ".new_zeros"
    )
    if dtypes != [f"{tokens}.dtype"] and (dtypes or of != tokens):
        raise Unfit(f"{loop.into} is not seen to have the dtype of the tokens")


def _counted(loop: ast.For) -> str:
    """n of `for expert in range(n)`."""
    made = loop.iter
    is_range = isinstance(made, ast.Call) and ast.unparse(made.func) == "range" and len(made.args) == 1
    if not is_range or not isinstance(made, ast.Call):
        raise Unfit("the loop over experts does not count all of them from 0 on")
    return ast.unparse(made.args[0])


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


def _chosen(item: ast.stmt, expert: str) -> tuple[str, str, str | ast.expr] | None:
    """(slots, tokens, the mask's name or the routing) of one of the two ways to find an expert's tokens.

    `top_k_pos, token_idx = torch.where(expert_mask[expert_idx])`, `token_idx, top_k_pos = torch.where(routing == expert_idx)`.
    """
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
    if not all(isinstance(target, ast.Name) for target in targets):
        return None
    first, second = (ast.unparse(target) for target in targets)
    held = made.args[0]
    if isinstance(held, ast.Subscript) and isinstance(held.value, ast.Name):
        return (first, second, held.value.id) if ast.unparse(held.slice) == expert else None
    routing = _routed_to(held, expert)
    return None if routing is None else (second, first, routing)


def _routed_to(test: ast.expr, expert: str) -> ast.expr | None:
    """The routing [T, K] of `routing == expert`."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return None
    sides = (test.left, test.comparators[0])
    others = [side for side in sides if ast.unparse(side) != expert]
    return others[0] if len(others) == 1 and isinstance(others[0], ast.Name) else None


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
