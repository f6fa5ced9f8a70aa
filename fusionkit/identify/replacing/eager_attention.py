"""npu_fusion_attention in place of an attention that is written out: scores, softmax, values."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from fusionkit.identify.replacing.fused_attention import (
    EMPTY_ROW_NOTE,
    MASK_NOTE,
    WEIGHTS_NOTE,
    Operands,
    dtype_lines,
    expanded,
    fused_call,
    of_four,
)
from fusionkit.identify.replacing.operands import Operand, Start
from fusionkit.identify.replacing.place import Place
from fusionkit.identify.replacing.replacement import Change, Unfit
from fusionkit.identify.replacing.scores import Scores, scores_of, statement_nodes
from fusionkit.identify.replacing.statements import names
from fusionkit.identify.source.values import CASTS, Value, peel

_PASSED = (ast.Tuple, ast.Return, ast.IfExp)


@dataclass(frozen=True, slots=True)
class _Attention:
    """The softmax, what dropped its result out, and the values that it weighs."""

    softmax: Value
    drops: tuple[Value, ...]
    casts: tuple[Value, ...]
    values: Value


def replace_eager_attention(place: Place) -> Change:
    """The change for one attention. Raises Unfit where a step of it is none of the op's."""
    attention = _attention(place)
    scores = scores_of(place.unit, attention.softmax.args[0])
    query, key, repeats = _query_and_key(scores.product)
    values, more = _unrepeated(attention.values)
    inner = (*attention.drops, *attention.casts, attention.softmax, *repeats, *more)
    parts = [place.value.node, *statement_nodes(scores), *(item.node for item in inner)]
    nodes = [item for item in parts if isinstance(item, ast.expr)]
    start = place.start(nodes)
    tensors = [start.operand(item) for item in (query, key, values)]
    lines: list[str] = []
    named = [
        _named(place, item, word, lines)
        for item, word in zip(tensors, ("query", "key", "value"), strict=True)
    ]
    scale, scale_names = _scale(start, scores)
    operands = Operands(named[0], named[1], named[2], "BNSD", scale)
    mask, mask_names = _mask(place, start, scores, operands, lines)
    dtype = place.fresh("compute_dtype")
    lines += dtype_lines(place, operands, dtype)
    weights = _weights(place, nodes)
    return Change(
        place.put(place.value.node, fused_call(operands, dtype, mask)),
        tuple(nodes),
        before={place.statements.statement(place.value.node or nodes[0]): lines},
        at_start=frozenset().union(*(item.names for item in tensors)) | scale_names | mask_names,
        nothing=weights,
        conditions=(*_rank(tensors[0]), *_conditions(place, start, attention, scores)),
        notes=_notes(scores, weights),
    )


def _notes(scores: Scores, weights: frozenset[str]) -> tuple[str, ...]:
    is_added = any(how == "add" for how, _ in scores.masks)
    return (
        *((MASK_NOTE,) if is_added else ()),
        *((EMPTY_ROW_NOTE,) if scores.masks else ()),
        *((WEIGHTS_NOTE,) if weights else ()),
    )


def _attention(place: Place) -> _Attention:
    value = place.value
    if value.op != "matmul" or len(value.args) != 2:
        raise Unfit("the weighted sum of values is not written as a matmul")
    drops, casts, item = list[Value](), list[Value](), value.args[0]
    for _ in range(8):
        if item.op == "softmax":
            _check_last_dim(item)
            return _Attention(item, tuple(drops), tuple(casts), value.args[1])
        if item.op in CASTS:
            casts.append(item)
            item = item.args[0]
        elif item.op == "dropout" or (item.op == "module" and "drop" in item.name and len(item.args) == 1):
            drops.append(item)
            item = item.args[0]
        else:
            break
    raise Unfit("the probabilities do not come straight from a softmax")


def _check_last_dim(softmax: Value) -> None:
    dim = softmax.arg(1, "dim")
    if dim is None or dim.number() not in (-1, 3):
        raise Unfit("the softmax is not taken over the last dimension")


def _query_and_key(product: Value) -> tuple[Value, Value, list[Value]]:
    """(query, key, what repeats the key's heads or turns the key)."""
    if len(product.args) != 2:
        raise Unfit("the scores are not a matmul of query and key")
    query, turned = product.args
    if turned.op != "transpose" or len(turned.args) != 3:
        raise Unfit("the key is not transposed where the scores are made")
    dims = {int(arg.number() or 0) for arg in turned.args[1:]}
    if dims not in ({2, 3}, {-1, -2}):
        raise Unfit("the key is not transposed over its last two dimensions")
    key, repeats = _unrepeated(turned.args[0])
    return query, key, [turned, *repeats]


def _unrepeated(value: Value) -> tuple[Value, list[Value]]:
    """The tensor before its heads were repeated: the op shares them itself."""
    if value.op == "call" and value.name.rpartition(".")[2] == "repeat_kv" and value.args:
        return value.args[0], [value]
    return value, []


def _named(place: Place, operand: Operand, word: str, lines: list[str]) -> str:
    if operand.text.isidentifier():
        return operand.text
    fresh = place.fresh(f"fused_{word}")
    lines.append(f"{fresh} = {operand.text}")
    return fresh


def _rank(query: Operand) -> tuple[str, ...]:
    return (f"{query.text}.dim() == 4",)


def _scale(start: Start, scores: Scores) -> tuple[str, frozenset[str]]:
    told, used = [], frozenset[str]()
    for op, factor in scores.scales:
        held = start.operand(factor)
        if "torch." in held.text:
            raise Unfit("the scale is a tensor, and the op wants a number")
        used |= held.names
        told.append(held.text if op == "mul" else f"1 / {held.text}")
    return " * ".join(told) or "1.0", used


def _mask(
    place: Place, start: Start, scores: Scores, operands: Operands, lines: list[str]
) -> tuple[str | None, frozenset[str]]:
    """(name of the mask that drops, names that it reads)."""
    if not scores.masks:
        return None, frozenset()
    if len(scores.masks) > 1:
        raise Unfit("several masks are laid on the scores")
    how, mask = scores.masks[0]
    held, base = _mask_operand(start, mask if how != "add" else peel(mask, CASTS), operands)
    dropping = {"add": f"{held.text} < 0", "drop": held.text, "keep": f"{held.text}.logical_not()"}[how]
    name = place.fresh("drop_mask")
    told = [f"{name} = {dropping}", f"{name} = {expanded(operands, of_four(name))}"]
    if scores.optional and not base:
        raise Unfit("the mask may be absent, and what says so cannot be told")
    if scores.optional:
        told = [f"{name} = None", f"if {base} is not None:", *(f"    {line}" for line in told)]
    lines += told
    return name, held.names


def _mask_operand(start: Start, mask: Value, operands: Operands) -> tuple[Operand, str]:
    """(the mask, the name that may be None): cut to the key's length as the original does it."""
    inner = mask
    if inner.op == "getitem" and inner.args[0].op == "param" and "shape[-2]" in inner.name:
        base = start.operand(inner.args[0])
        cut = f"{base.text}[:, :, :, : {operands.size(operands.key, 'S')}]"
        return Operand(cut, base.names), base.text
    held = start.operand(inner)
    if held.text.isidentifier():
        return held, held.text
    read = {item.name for item in inner.args if item.op == "param" and "mask" in item.name}
    return held, read.pop() if len(read) == 1 else ""


def _conditions(place: Place, start: Start, attention: _Attention, scores: Scores) -> tuple[str, ...]:
    found = [f"{start.operand(cap).text} is None" for cap in scores.caps]
    for drop in attention.drops:
        found.append(_without_dropout(place, drop))
    if "output_attentions" in place.unit.flow.parameters:
        found.append("not output_attentions")
    return tuple(found)


def _without_dropout(place: Place, drop: Value) -> str:
    """What says that a dropout does nothing."""
    node = drop.node
    if drop.op == "module" and isinstance(node, ast.Call):
        return f"(not self.training or {place.text(node.func)}.p == 0)"
    if not isinstance(node, ast.Call):
        raise Unfit("the dropout is not called")
    rate = next(
        (item.value for item in node.keywords if item.arg == "p"),
        node.args[1] if len(node.args) > 1 else None,
    )
    training = next((item.value for item in node.keywords if item.arg == "training"), None)
    if rate is None:
        raise Unfit("the dropout's rate is not given")
    off = f"{place.tight(rate)} == 0"
    return off if training is None else f"(not {place.tight(training)} or {off})"


def _weights(place: Place, nodes: list[ast.expr]) -> frozenset[str]:
    """Names of scores and probabilities that are handed out after: the fused branch has none of them."""
    written: set[str] = set()
    last = max(node.lineno for node in nodes)
    result = names(place.statements.statement(place.value.node or nodes[0]))[1]
    for node in nodes:
        held = place.statements.statement(node)
        if isinstance(held, (ast.Assign, ast.AugAssign)):
            written |= names(held)[1]
    found = set()
    for item in ast.walk(place.unit.node):
        if (
            isinstance(item, ast.Name)
            and isinstance(item.ctx, ast.Load)
            and item.lineno > last
            and item.id in written - result
        ):
            if not isinstance(place.statements.parent(item), _PASSED):
                raise Unfit(f"{item.id} is worked on after the attention, and the op does not give it")
            found.add(item.id)
    return frozenset(found)
