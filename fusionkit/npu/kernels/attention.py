"""npu_fusion_attention and its gradient. Formulas: ops-transformer docs aclnnFlashAttentionScore (and Grad).

float32 inside, one rounding to query's dtype. All scores are materialised: for small shapes only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from fusionkit.errors import MisuseError
from fusionkit.npu.attention_constraints import attention_shape
from fusionkit.npu.kernels.attention_blocks import (
    Masking,
    check_ends,
    from_heads,
    from_statistics,
    statistics,
    to_heads,
)
from fusionkit.npu.kernels.op_kernel import Autograd, OpKernel
from fusionkit.npu.schemas import bind, parsed_schema

Tensor = torch.Tensor

_OP = "npu_fusion_attention"
_LOWEST = torch.finfo(torch.float32).min  # the score of a dropped position


@dataclass(frozen=True, slots=True)
class _Call:
    """Inputs of forward and backward: blocks [B, N, S, D] in float32, key and value expanded to query's heads."""

    layout: str
    query: list[Tensor]
    key: list[Tensor]
    value: list[Tensor]
    kv_heads: int
    query_ends: Sequence[int]
    pse: Tensor | None
    sink: Tensor | None
    scale: float
    masking: Masking

    def dropped(self, block: int) -> Tensor | None:
        return self.masking.dropped(self.query[block].shape[2], self.key[block].shape[2])

    def scores(self, block: int, dropped: Tensor | None) -> Tensor:
        """scale * (query @ key^T + pse); the lowest number for dropped scores."""
        product = self.query[block] @ self.key[block].transpose(-2, -1)
        scores = (product if self.pse is None else product + self.pse.float()) * self.scale
        return scores if dropped is None else scores.masked_fill(dropped, _LOWEST)

    def sink_scores(self) -> Tensor | None:
        return None if self.sink is None else self.sink.float().reshape(1, -1, 1, 1)

    def per_kv_head(self, gradient: Tensor) -> Tensor:
        """[B, N, S, D] summed over the query heads that share a head of key and value."""
        shared: Tensor = gradient.unflatten(1, (self.kv_heads, -1))
        return shared.sum(2)


def _read(arguments: Mapping[str, Any], scale: float) -> _Call:
    """Read a call. Raises MisuseError for modes that target cpu does not compute, and for sequence ends that do not fit."""
    _refuse_uncomputed(arguments)
    layout, shape = arguments["input_layout"], attention_shape(arguments)
    if shape is None or shape.heads is None or shape.kv_heads is None:
        raise MisuseError(f"{_OP}: query, key and value must fit {layout} with {arguments['head_num']} heads")
    query_ends: Sequence[int] = ()
    key_ends: Sequence[int] = ()
    if layout == "TND":
        query_ends, key_ends = arguments["actual_seq_qlen"], arguments["actual_seq_kvlen"]
        check_ends("actual_seq_qlen", query_ends, arguments["query"].shape[0])
        check_ends("actual_seq_kvlen", key_ends, arguments["key"].shape[0])
    group = shape.heads // shape.kv_heads
    key, value = (
        [
            part.repeat_interleave(group, 1)
            for part in to_heads(arguments[name], layout, shape.kv_heads, key_ends)
        ]
        for name in ("key", "value")
    )
    masking = Masking(**{field.name: arguments[field.name] for field in fields(Masking)})
    query = to_heads(arguments["query"], layout, shape.heads, query_ends)
    pse, sink = arguments["pse"], arguments["sink"]
    return _Call(layout, query, key, value, shape.kv_heads, query_ends, pse, sink, scale, masking)


def _refuse_uncomputed(arguments: Mapping[str, Any]) -> None:
    pse, layout, query = arguments["pse"], arguments["input_layout"], arguments["query"]
    packed = layout == "TND"
    if arguments["keep_prob"] != 1.0 or arguments.get("dropout_mask") is not None:
        raise MisuseError(
            f"{_OP}: target cpu computes no dropout (the device draws its mask from random numbers of its"
            f" own), got keep_prob {arguments['keep_prob']}; compare with keep_prob=1.0 and no dropout_mask"
        )
    if not packed and (arguments["actual_seq_qlen"] or arguments["actual_seq_kvlen"]):
        raise MisuseError(f"{_OP}: target cpu takes actual_seq_qlen and actual_seq_kvlen with TND only")
    rows = None if packed else query.shape[{"BNSD": 2, "BSND": 1, "BSH": 1, "SBH": 0}[layout]]
    if pse is not None and (packed or pse.shape[-2] not in (1, rows)):
        raise MisuseError(f"{_OP}: target cpu takes pse as BNSS, BN1S or 1NSS only, and not with TND")


def _row_maxima(scores: Tensor) -> Tensor:
    """[..., 1]; the lowest number for a packed sequence without keys."""
    if scores.shape[-1]:
        return scores.amax(-1, keepdim=True)
    return scores.new_full((*scores.shape[:-1], 1), _LOWEST)


def fusion_attention(**arguments: Any) -> tuple[Any, ...]:
    """(attention, softmax_max, softmax_sum, empty, seed, offset, numels).

    attention = softmax(mask(scale * (query @ key^T + pse))) @ value, in query's dtype and layout; scale is 1.0
    unless it is given. The statistics are float32 [B, N, S, 8], with TND [T, N, 8], each value eight times.
    sink adds one score per head to the softmax's sum. Without dropout, the last three are 0.
    """
    call = _read(arguments, arguments["scale"])
    attention, maxima, sums = [], [], []
    for block, value in enumerate(call.value):
        scores, sink = call.scores(block, call.dropped(block)), call.sink_scores()
        top = _row_maxima(scores)
        top = top if sink is None else torch.maximum(top, sink)
        weights = torch.exp(scores - top)
        total = weights.sum(-1, keepdim=True)
        total = total if sink is None else total + torch.exp(sink - top)
        if call.masking.zeroes_masked_rows:
            total = total.masked_fill(top == _LOWEST, torch.inf)
        attention.append(weights / total @ value)
        maxima.append(top)
        sums.append(total)
    query, layout = arguments["query"], call.layout
    result = from_heads(attention, layout, query.dtype), statistics(maxima, layout), statistics(sums, layout)
    return *result, query.new_empty(0), 0, 0, 0


def _fake_fusion_attention(
    query: Tensor, key: Tensor, value: Tensor, head_num: int, input_layout: str, **_: Any
) -> tuple[Any, ...]:
    width = value.shape[-1]
    if input_layout in ("BSH", "SBH"):
        width = head_num * (width // (key.shape[-1] // (query.shape[-1] // head_num)))
    sizes = dict(zip(input_layout, query.shape, strict=False))
    rows = [sizes["T"], head_num] if input_layout == "TND" else [sizes["B"], head_num, sizes["S"]]
    attention = query.new_empty((*query.shape[:-1], width))
    maxima, sums = (query.new_empty((*rows, 8), dtype=torch.float32) for _ in range(2))
    return attention, maxima, sums, query.new_empty(0), 0, 0, 0


def fusion_attention_grad(**arguments: Any) -> tuple[Tensor | None, ...]:
    """(dquery, dkey, dvalue, None, dsink); dsink is empty without sink. There is no gradient of pse."""
    call = _read(arguments, arguments["scale_value"])
    ends, layout = call.query_ends, call.layout
    upstream = to_heads(arguments["dy"], layout, call.query[0].shape[1], ends)
    maxima, sums = (from_statistics(arguments[name], layout, ends) for name in ("softmax_max", "softmax_sum"))
    gradients: tuple[list[Tensor], ...] = ([], [], [])
    dsink: Tensor | None = None
    for block, dy in enumerate(upstream):
        dropped = call.dropped(block)
        weights = torch.exp(call.scores(block, dropped) - maxima[block]) / sums[block]
        dweights = dy @ call.value[block].transpose(-2, -1)
        mean = (weights * dweights).sum(-1, keepdim=True)
        dscores = weights * (dweights - mean) * call.scale
        dscores = dscores if dropped is None else dscores.masked_fill(dropped, 0.0)
        gradients[0].append(dscores @ call.key[block])
        gradients[1].append(call.per_kv_head(dscores.transpose(-2, -1) @ call.query[block]))
        gradients[2].append(call.per_kv_head(weights.transpose(-2, -1) @ dy))
        sink = call.sink_scores()
        if sink is not None:
            part = -(torch.exp(sink - maxima[block]) / sums[block] * mean).sum((0, 2, 3))
            dsink = part if dsink is None else dsink + part
    dquery, dkey, dvalue = (from_heads(blocks, layout, arguments["query"].dtype) for blocks in gradients)
    return dquery, dkey, dvalue, None, torch.empty(0, dtype=torch.float32) if dsink is None else dsink


def _fake_fusion_attention_grad(
    query: Tensor, key: Tensor, value: Tensor, sink: Tensor | None, **_: Any
) -> tuple[Tensor | None, ...]:
    grads = (query.new_empty(part.shape) for part in (query, key, value))
    dsink = query.new_empty(0, dtype=torch.float32) if sink is None else sink.new_empty(sink.shape)
    return *grads, None, dsink


_SAVED = ("query", "key", "value", "pse", "padding_mask", "atten_mask", "sink")


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    arguments = bind(_OP, *inputs)
    ctx.save_for_backward(*(arguments.pop(name) for name in _SAVED), *output[:4])
    ctx.mark_non_differentiable(*output[1:4])
    for name in ("dropout_mask", "seed", "offset"):
        del arguments[name]
    ctx.options = {**arguments, **dict(zip(("seed", "offset", "numels"), output[4:], strict=True))}


def _backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    names = [argument.name for argument in parsed_schema(_OP).arguments]
    # the dispatcher leaves out defaults at the end, so there may be fewer inputs than names
    if dict(zip(names, ctx.needs_input_grad, strict=False)).get("pse", False):
        raise MisuseError(
            f"{_OP}: pse has no gradient (aclnnFlashAttentionScoreGrad leaves dpse unused); a learned bias"
            " cannot be trained through it"
        )
    tensors = dict(zip(_SAVED, ctx.saved_tensors, strict=False))
    attention, maxima, sums, softmax = ctx.saved_tensors[len(_SAVED) :]
    options = dict(ctx.options)
    inputs = [tensors.pop(name) for name in ("query", "key", "value")]
    *grads, _dpse, dsink = torch.ops.npu.npu_fusion_attention_grad(
        *inputs,
        grad,
        options.pop("head_num"),
        options.pop("input_layout"),
        softmax_max=maxima,
        softmax_sum=sums,
        softmax_in=softmax,
        attention_in=attention,
        scale_value=options.pop("scale"),
        **tensors,
        **options,
    )
    gradients = {
        **dict(zip(names, grads, strict=False)),
        "sink": dsink if tensors["sink"] is not None else None,
    }
    return tuple(gradients.get(name) for name in names)


KERNELS = (
    OpKernel(_OP, fusion_attention, _fake_fusion_attention, Autograd(_save, _backward)),
    OpKernel("npu_fusion_attention_grad", fusion_attention_grad, _fake_fusion_attention_grad),
)
