"""How cos and sin lie beside what is rotated, and what a branch has to ask so that npu_rotary_mul takes them.

Source: op-plugin docs, torch_npu.npu_rotary_mul (the forms of r1, and B * N below 1000 in mode interleave).
"""

from __future__ import annotations

import ast

from fusionkit.identify.replacing.idle import is_pure
from fusionkit.identify.replacing.operands import Start
from fusionkit.identify.replacing.place import Place
from fusionkit.identify.replacing.replacement import Unfit
from fusionkit.identify.replacing.statements import names
from fusionkit.identify.rules.rotations import HALF, INTERLEAVED, rotation
from fusionkit.identify.source.values import CASTS, PASSED, Value, peel

BOTH = "both"  # which one depends on an argument
HEADS_ONLY = "heads only"
_COUNT_LIMIT = 1000  # interleave: batch times heads
_KEEPS_RANK = (*CASTS, "contiguous", "expand", "clone", "detach", "part", "repeat_interleave", "neg")


def told_layout(place: Place, start: Start, turned: Value) -> tuple[str, str]:
    """(HALF, INTERLEAVED or BOTH, the test that chooses INTERLEAVED as source; "" where nothing is to choose).

    Raises Unfit where a side's layout cannot be told, or the test means something else where the op is called.
    """
    sides = peel(turned)
    if sides.op != "either":
        return rotation(place.unit, turned) or HALF, ""
    found = [rotation(place.unit, side) for side in sides.args]
    if None in found:
        raise Unfit("what is turned depends on a branch")
    if len(set(found)) == 1:
        return found[0] or HALF, ""
    test = sides.node
    if len(found) != 2 or not isinstance(test, ast.expr) or not is_pure(test):
        raise Unfit("neighbours or halves are turned, by a test that cannot be asked again")
    if names(test)[0] & start.written_since(test):
        raise Unfit("what chooses between neighbours and halves changes before the fused op is called")
    text = place.text(test)
    return BOTH, text if found[0] == INTERLEAVED else f"not ({text})"


def rank_told(cos: Value) -> str:
    """What is visible of the rank of cos.

    "unsqueezed" or "indexed" (all axes but one and the last put in): it is that of x. HEADS_ONLY: one of the heads was
    put in, so that axes in front may be missing. "": nothing.
    """
    value = cos
    for _ in range(12):
        if value.op == "unsqueeze" and len(value.args) > 1:
            dim = value.args[1]
            return "unsqueezed" if dim.op == "param" else HEADS_ONLY if dim.number() == -2 else ""
        if value.op == "either" and value.args:
            told = {rank_told(side) for side in value.args}
            return told.pop() if len(told) == 1 else ""
        if value.op == "getitem" and "None" in value.name:
            entries = [item.strip() for item in value.name.strip("()").split(",")]
            is_whole = set(entries) == {"None", ":"} and len(entries) == 4
            if not is_whole or entries[-1] == "None":
                return ""
            return "indexed" if entries.count("None") == 2 else "unsqueezed"
        is_cut = value.op == "getitem" and ("..." in value.name or value.name.isdigit())
        if value.op == "cat" and value.args and value.args[0].op == "tuple" and value.args[0].args:
            value = value.args[0].args[0]
        elif (value.op in _KEEPS_RANK or is_cut) and value.args:
            value = value.args[0]
        else:
            break
    return ""


def in_front(told: str, x: str, cos: str) -> str:
    """cos with the axes put in front that x has more, where it may have any."""
    return f"{cos}[(None,) * ({x}.dim() - {cos}.dim())]" if told in ("", HEADS_ONLY) else cos


def asked(x: str, cos: str, told: str, layout: str, width: int = 1) -> tuple[str, ...]:
    """Conditions on rank and sizes. `x`, `cos`: names. `width`: how many times wider the op's cos is."""
    rank = () if told and layout == HALF else (f"{x}.dim() == 4",)
    if layout == HALF:
        return rank
    axes = {
        "indexed": (),
        "unsqueezed": (f"{cos}.shape[0] == 1",),
        **dict.fromkeys(("", HEADS_ONLY), (f"{cos}.numel() == max({cos}.shape[:-1]) * {cos}.shape[-1]",)),
    }[told]
    return (*rank, *axes, f"{x}.numel() < {_COUNT_LIMIT * width} * {cos}.numel()")


def sized_by(text: str) -> str:
    """The name whose sizes an operand's text has, axes of one and casts aside."""
    node = ast.parse(text, mode="eval").body
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PASSED:
            node = node.func.value
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return ast.unparse(node)
        else:
            raise Unfit("the sizes of an operand of the rotation cannot be asked")
    return node.id


def over_all_heads(turned: Value) -> bool:
    """Whether what is turned visibly ends as three dimensions, the last of which holds all heads."""
    ending = turned
    while ending.op in PASSED and ending.op != "flatten" and ending.args:
        ending = ending.args[0]
    return ending.op == "flatten" and len(ending.args) == 2 and ending.args[1].number() == 2
