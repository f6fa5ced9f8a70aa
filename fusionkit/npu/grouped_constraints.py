"""Tensor lists of a call of npu_grouped_matmul, and its constraints on Atlas A2 and A3.

group_type names the grouped axis of [M, K] @ [K, N]: 0 the rows M (one [E, K, N] weight, or one [K, N] weight per
group), 2 the columns K of x (the result is [E, M, N]), -1 none (each x has a weight of its own). A group_list of
ints goes with group_type None and groups the rows. Source: op-plugin docs npu_grouped_matmul.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fusionkit.npu.constraint_checks import (
    FLOATS,
    Arguments,
    Row,
    Rule,
    cited,
    dtype_text,
    is_tensor,
    rule,
    same,
    shape_text,
    sizes,
)

_SPLIT_ITEMS = {-1: (0, 1), 0: (2, 3), 2: (2, 3)}


def _texts(tensors: Sequence[Any]) -> str:
    shown = ", ".join(shape_text(tensor) for tensor in tensors[:3])
    return f"{shown}, ..." if len(tensors) > 3 else shown


def _takes_ints(arguments: Arguments) -> bool:
    """Whether the call is for the overload with a group_list of ints, which has no tuning_config."""
    return isinstance(arguments["group_list"], list | tuple) or "tuning_config" not in arguments


def grouped_axis(arguments: Arguments) -> int | None:
    """group_type: -1, 0 or 2; for the overload with ints 0, or -1 without group_list; None if it is missing."""
    group_type: int | None = arguments["group_type"]
    if group_type is not None or not _takes_ints(arguments):
        return group_type
    alone = arguments["group_list"] is None and (arguments["split_item"] or 0) in (0, 1)
    return -1 if alone else 0


def _group_count(arguments: Arguments) -> int | None:
    """Number of groups by the weights; None with group_type 2, where only group_list defines it."""
    weight = arguments["weight"]
    if grouped_axis(arguments) == 2 or not weight:
        return None
    return sizes(weight[0])[0] if len(weight) == 1 and len(weight[0].shape) == 3 else len(weight)


def _quantized(arguments: Arguments) -> bool:
    return any(tensor.dtype == torch.int8 for name in ("x", "weight") for tensor in arguments[name])


def _tensor_count(name: str) -> Rule:
    @rule(name, "must hold 1 to 128 tensors")
    def check(arguments: Arguments) -> str | None:
        count = len(arguments[name])
        return None if 1 <= count <= 128 else str(count)

    return check


def _list_dtypes(name: str, text: str) -> Callable[[Callable[[Arguments, torch.dtype], bool]], Rule]:
    """Decorator of a test of a dtype: all tensors of the list have the same dtype, which passes it."""

    def decorate(allowed: Callable[[Arguments, torch.dtype], bool]) -> Rule:
        @rule(name, text)
        def check(arguments: Arguments) -> str | None:
            tensors = {tensor.dtype: tensor for tensor in arguments[name] or ()}
            right = len(tensors) <= 1 and all(allowed(arguments, dtype) for dtype in tensors)
            return None if right else ", ".join(sorted(map(dtype_text, tensors.values())))

        return check

    return decorate


@_list_dtypes("x", "must be float16, bfloat16, float32 or int8, all alike")
def _x_dtype(_: Arguments, dtype: torch.dtype) -> bool:
    return dtype in (*FLOATS, torch.int8)


@_list_dtypes("weight", "must have the dtype of x, or int8, all alike")
def _weight_dtype(arguments: Arguments, dtype: torch.dtype) -> bool:
    x = arguments["x"]
    return not x or dtype in (x[0].dtype, torch.int8)


@_list_dtypes("bias", "must be float16 with float16 x, else float32")
def _bias_dtype(arguments: Arguments, dtype: torch.dtype) -> bool:
    x = arguments["x"]
    wanted = torch.float16 if x and x[0].dtype == torch.float16 else torch.float32
    return _quantized(arguments) or dtype == wanted


@rule("group_type", "must be -1, 0 or 2 (never left out), and None with a group_list of ints")
def _group_type_given(arguments: Arguments) -> str | None:
    group_type, listed = arguments["group_type"], _takes_ints(arguments)
    right = group_type is None if listed else group_type in (-1, 0, 2)
    return None if right else f"{group_type}{' with a group_list of ints' if listed else ''}"


@rule("split_item", "must be 0 or 1 with group_type -1, and 2 or 3 with group_type 0 and 2")
def _split_item_fits(arguments: Arguments) -> str | None:
    group_type, split_item = arguments["group_type"], arguments["split_item"] or 0
    allowed = _SPLIT_ITEMS.get(group_type, (0, 1, 2, 3))
    return None if split_item in allowed else f"{split_item} with group_type {group_type}"


@rule("x", "must have 2 dimensions (up to 6 with group_type -1), and be one tensor with group_type 2")
def _x_form(arguments: Arguments) -> str | None:
    x, mode = arguments["x"], grouped_axis(arguments)
    most = 6 if mode == -1 else 2
    right = all(2 <= len(tensor.shape) <= most for tensor in x) and (mode != 2 or len(x) == 1)
    return None if right else f"{_texts(x)} with group_type {arguments['group_type']}"


@rule("x", "must be the transposed view of [K, M] with group_type 2, and no transposed view otherwise")
def _x_layout(arguments: Arguments) -> str | None:
    group_type = arguments["group_type"]
    for tensor in arguments["x"]:
        if not hasattr(tensor, "stride") or len(tensor.shape) != 2:
            continue
        if any(not isinstance(size, int) or size < 2 for size in tensor.shape):  # symbolic: unknown
            continue
        strides = list(tensor.stride())
        transposed = bool(strides[0] == 1 and strides[1] >= tensor.shape[0])
        if transposed != (grouped_axis(arguments) == 2):
            return f"strides {strides} of {shape_text(tensor)} with group_type {group_type}"
    return None


@rule(
    "weight", "must be [K, N] tensors; group_type 0 also takes one [E, K, N]; group_type 2 takes one [K, N]"
)
def _weight_form(arguments: Arguments) -> str | None:
    weight, mode = arguments["weight"], grouped_axis(arguments)
    ranks = [len(tensor.shape) for tensor in weight]
    flat = set(ranks) == {2} and (mode != 2 or len(ranks) == 1)
    right = flat or (mode == 0 and ranks == [3])
    return None if right else f"{_texts(weight)} with group_type {arguments['group_type']}"


@rule("weight", "must have the K of x, one x or one for each weight")
def _inner_sizes_agree(arguments: Arguments) -> str | None:
    x, weight = arguments["x"], arguments["weight"]
    if not x or not weight:
        return None
    if len(x) not in (1, len(weight)):
        return f"{len(x)} x with {len(weight)} weights"
    for left, right in zip(x if len(x) > 1 else x * len(weight), weight, strict=True):
        if len(right.shape) >= 2 and len(left.shape) and not same(sizes(right)[-2:-1], sizes(left)[-1:]):
            return f"{shape_text(right)} with {shape_text(left)}"
    return None


@rule("weight", "must have one N where the result is one tensor")
def _outer_sizes_agree(arguments: Arguments) -> str | None:
    widths = {sizes(tensor)[-1] for tensor in arguments["weight"] if len(tensor.shape)} - {None}
    single = (arguments["split_item"] or 0) in (2, 3)
    return _texts(arguments["weight"]) if single and len(widths) > 1 else None


@rule("bias", "must be [N] for each weight, [E, N] for one [E, K, N], and None with group_type 2")
def _bias_form(arguments: Arguments) -> str | None:
    bias, weight = arguments["bias"], arguments["weight"]
    if not bias:
        return None
    if grouped_axis(arguments) == 2 or len(bias) != len(weight):
        return f"{len(bias)} with {len(weight)} weights, group_type {arguments['group_type']}"
    for part, matrix in zip(bias, weight, strict=True):
        whole = sizes(matrix)
        if len(whole) >= 2 and sizes(part) != (*whole[:-2], whole[-1]) and None not in (*whole, *sizes(part)):
            return f"{shape_text(part)} with {shape_text(matrix)}"
    return None


@rule("group_list", "must be int64 (or ints), one value for each group")
def _group_list_form(arguments: Arguments) -> str | None:
    group_list, groups = arguments["group_list"], _group_count(arguments)
    if group_list is None:
        return None
    if not is_tensor(group_list):
        return None if groups in (None, len(group_list)) else f"{len(group_list)} ints for {groups} groups"
    right = group_list.dtype == torch.int64 and same(sizes(group_list), (groups,))
    return None if right else f"{dtype_text(group_list)} {shape_text(group_list)}"


@rule("group_list", "must be None with group_type -1, and given where one x is split")
def _group_list_given(arguments: Arguments) -> str | None:
    group_list, mode = arguments["group_list"], grouped_axis(arguments)
    if mode == -1:
        return None if group_list is None else "one with group_type -1"
    whole = _takes_ints(arguments) and len(arguments["weight"]) == 1
    missing = group_list is None and mode in (0, 2) and len(arguments["x"]) == 1 and not whole
    return f"None with group_type {arguments['group_type']}" if missing else None


@rule("group_list_type", "must be 0 (running sums) or 1 (counts); a list of ints holds running sums")
def _group_list_type_known(arguments: Arguments) -> str | None:
    kind, listed = arguments["group_list_type"] or 0, _takes_ints(arguments)
    allowed = (0,) if listed else (0, 1, 2) if _quantized(arguments) else (0, 1)
    return None if kind in allowed else f"{kind}{' with a list' if listed else ''}"


@rule("act_type", "must be 0 without quantisation")
def _activation_needs_quantization(arguments: Arguments) -> str | None:
    return None if not arguments["act_type"] or _quantized(arguments) else str(arguments["act_type"])


@rule("output_dtype", "must be None or the dtype of x without quantisation")
def _output_dtype_fits(arguments: Arguments) -> str | None:
    wanted, x = arguments["output_dtype"], arguments["x"]
    if wanted is None or not x or _quantized(arguments):
        return None
    numbers = {
        torch.float16: 5,
        torch.float32: 6,
        torch.bfloat16: 15,
    }  # torch's ScalarType (default overload)
    return None if wanted in (x[0].dtype, numbers.get(x[0].dtype)) else str(wanted)


@rule(
    "x",
    "must not need a gradient, nor weight or bias: torch_npu has no derivative for the op, so an"
    " autograd.Function has to call it (the weight's gradient: group_type 2)",
)
def _needs_no_gradient(arguments: Arguments) -> str | None:
    if not torch.is_grad_enabled():
        return None
    wanting = [
        name
        for name in ("x", "weight", "bias")
        if any(getattr(tensor, "requires_grad", False) for tensor in arguments[name] or ())
    ]
    return f"{' and '.join(wanting)} that need one" if wanting else None


_DOCS = "op-plugin docs npu_grouped_matmul"
_ROWS: tuple[Row, ...] = (
    *cited(_DOCS, _tensor_count("x"), _tensor_count("weight"), _x_dtype, _weight_dtype),
    *cited(_DOCS, _group_type_given, _split_item_fits, _x_form, _x_layout, _weight_form),
    *cited(_DOCS, _inner_sizes_agree, _outer_sizes_agree, _bias_dtype),
    *cited("ops-transformer docs aclnnGroupedMatmulV4", _bias_form),
    *cited(_DOCS, _group_list_form, _group_list_given, _group_list_type_known),
    *cited(_DOCS, _activation_needs_quantization, _output_dtype_fits),
    *cited("torch_npu 2.13 derivatives", _needs_no_gradient),
)

GROUPED_ROWS: dict[str, tuple[Row, ...]] = {"npu_grouped_matmul": _ROWS, "npu_grouped_matmul.List": _ROWS}
