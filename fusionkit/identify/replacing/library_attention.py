"""npu_fusion_attention in place of F.scaled_dot_product_attention, and of diffusers' dispatch_attention_fn."""

from __future__ import annotations

import ast

from fusionkit.identify.replacing.fused_attention import (
    EMPTY_ROW_NOTE,
    MASK_NOTE,
    Operands,
    causal_line,
    dtype_lines,
    fused_call,
    mask_lines,
)
from fusionkit.identify.replacing.place import Place
from fusionkit.identify.replacing.replacement import Change, Unfit

CAUSAL_NOTE = (
    "is_causal makes a whole Sq x Skv mask at every call: for long sequences make the 2048 x 2048 template once and hand it"
    " over with sparse_mode 2, which is aligned at the top left as well"
)
_SIGNATURE = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_CHOICES = ("backend", "parallel_config")  # of dispatch_attention_fn: None leaves it to the default


def replace_library_attention(place: Place) -> Change:
    """The change for one call. Raises Unfit where its arguments are not written one by one."""
    node = place.value.node
    if not isinstance(node, ast.Call):
        raise Unfit("the attention is not called")
    is_dispatch = place.value.op == "call"
    given = _arguments(node)
    lines: list[str] = []
    names = [_named(place, given, name, lines) for name in _SIGNATURE[:3]]
    scale = place.text(given["scale"]) if _is_given(given, "scale") else f"{names[0]}.shape[-1] ** -0.5"
    if isinstance(given.get("scale"), (ast.Name, ast.Attribute)):
        scale = f"{names[0]}.shape[-1] ** -0.5 if {scale} is None else {scale}"
    operands = Operands(names[0], names[1], names[2], "BSND" if is_dispatch else "BNSD", scale)
    dtype, mask = place.fresh("compute_dtype"), _mask(place, given, operands, lines)
    lines += dtype_lines(place, operands, dtype)
    conditions = (*_rank(given), *_dropout(place, given), *_chosen(place, given))
    notes: tuple[str, ...] = (MASK_NOTE, EMPTY_ROW_NOTE) if _is_given(given, "attn_mask") else ()
    notes += (CAUSAL_NOTE,) if _is_given(given, "is_causal") else ()
    statement = place.statements.statement(node)
    return Change(
        place.put(node, fused_call(operands, dtype, mask)),
        before={statement: lines},
        conditions=conditions,
        notes=notes,
    )


def _arguments(node: ast.Call) -> dict[str, ast.expr]:
    if any(isinstance(item, ast.Starred) for item in node.args) or any(
        item.arg is None for item in node.keywords
    ):
        raise Unfit("the attention's arguments are handed over by * or **")
    given = dict(zip(_SIGNATURE, node.args, strict=False)) | {
        item.arg or "": item.value for item in node.keywords
    }
    unknown = set(given) - {*_SIGNATURE, *_CHOICES}
    if unknown:
        raise Unfit(f"the attention is given {' and '.join(sorted(unknown))}, which the op does not have")
    if not {"query", "key", "value"} <= set(given):
        raise Unfit("the attention is called without query, key or value")
    return given


def _is_given(given: dict[str, ast.expr], name: str) -> bool:
    held = given.get(name)
    return held is not None and not (isinstance(held, ast.Constant) and held.value in (None, False))


def _named(place: Place, given: dict[str, ast.expr], name: str, lines: list[str]) -> str:
    """The name of an operand; an expression gets one."""
    held = given[name]
    if isinstance(held, ast.Name):
        return held.id
    fresh = place.fresh(f"fused_{name}")
    lines.append(f"{fresh} = {place.text(held)}")
    return fresh


def _mask(place: Place, given: dict[str, ast.expr], operands: Operands, lines: list[str]) -> str | None:
    """The name of the mask that drops; None where there is none."""
    name = place.fresh("drop_mask")
    has_mask, causal = _is_given(given, "attn_mask"), given.get("is_causal")
    if has_mask:
        lines += mask_lines(place, operands, name, place.text(given["attn_mask"]))
    if not _is_given(given, "is_causal") or causal is None:
        return name if has_mask else None
    line = causal_line(place, operands, name)
    if isinstance(causal, ast.Constant):
        lines.append(line)
    else:
        lines += [*([] if has_mask else [f"{name} = None"]), f"if {place.text(causal)}:", f"    {line}"]
    return name


def _rank(given: dict[str, ast.expr]) -> tuple[str, ...]:
    """Four dimensions, asked where query has a name already."""
    held = given["query"]
    return (f"{held.id}.dim() == 4",) if isinstance(held, ast.Name) else ()


def _dropout(place: Place, given: dict[str, ast.expr]) -> tuple[str, ...]:
    held = given.get("dropout_p")
    if held is None or (isinstance(held, ast.Constant) and not held.value):
        return ()
    return (f"{place.tight(held)} == 0.0",)


def _chosen(place: Place, given: dict[str, ast.expr]) -> tuple[str, ...]:
    """Where a backend or a way of parallel work was chosen, the original does it."""
    return tuple(f"{place.tight(given[name])} is None" for name in _CHOICES if _is_given(given, name))
