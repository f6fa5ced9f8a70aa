"""npu_fusion_attention in place of F.scaled_dot_product_attention, and of diffusers' dispatch_attention_fn."""

from __future__ import annotations

import ast

from fusionkit.identify.replacing.fused_attention import (
    CAUSAL,
    EMPTY_ROW_NOTE,
    MASK_NOTE,
    Operands,
    dtype_lines,
    fused_call,
    mask_lines,
    shape_lines,
    template_line,
)
from fusionkit.identify.replacing.place import Place
from fusionkit.identify.replacing.polarity import dropping, is_boolean
from fusionkit.identify.replacing.replacement import Change, Unfit

CAUSAL_NOTE = (
    "is_causal becomes sparse_mode 2, aligned at the top left as well; its 2048 x 2048 template (4 MB) is made at every"
    " call, since one that is kept would be caught by graph capture or inference mode: where a profile shows it, hold it"
    " as a buffer of the module"
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
    dtype, (mask, mode) = place.fresh("compute_dtype"), _mask(place, given, operands, lines)
    lines += dtype_lines(place, operands, dtype)
    conditions = (*_rank(given), *_dropout(place, given), *_chosen(place, given))
    statement = place.statements.statement(node)
    return Change(
        place.put(node, fused_call(operands, dtype, mask, mode)),
        before={statement: lines},
        conditions=conditions,
        notes=_notes(place, given),
    )


def _notes(place: Place, given: dict[str, ast.expr]) -> tuple[str, ...]:
    has_mask = _is_given(given, "attn_mask")
    return (
        *((MASK_NOTE,) if has_mask and not _is_boolean(place) else ()),
        *((EMPTY_ROW_NOTE,) if has_mask else ()),
        *((CAUSAL_NOTE,) if _is_given(given, "is_causal") else ()),
    )


def _is_boolean(place: Place) -> bool:
    """Whether the mask of the call is boolean by the way it is made."""
    mask = place.value.arg(3, "attn_mask")
    return mask is not None and is_boolean(mask)


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


def _mask(
    place: Place, given: dict[str, ast.expr], operands: Operands, lines: list[str]
) -> tuple[str | None, str]:
    """(name of the mask that drops, None where there is none; the sparse mode, "" for the default)."""
    name = place.fresh("drop_mask")
    has_mask, causal = _is_given(given, "attn_mask"), given.get("is_causal")
    if has_mask and _is_boolean(place):
        lines += [f"{name} = {dropping(place, given['attn_mask'])}", *shape_lines(operands, name)]
    elif has_mask:
        lines += mask_lines(place, operands, name, place.text(given["attn_mask"]))
    if not _is_given(given, "is_causal") or causal is None:
        return (name if has_mask else None), ""
    line = template_line(place, operands, name)
    if isinstance(causal, ast.Constant):
        lines.append(line)
        return name, CAUSAL
    mode = place.fresh("sparse_mode")
    lines += [*([] if has_mask else [f"{name} = None"]), f"{mode} = 0"]
    lines += [f"if {place.text(causal)}:", f"    {line}", f"    {mode} = {CAUSAL}"]
    return name, mode


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
