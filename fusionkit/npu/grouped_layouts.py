"""Tensor lists of a call of npu_grouped_matmul, and the checks of its constraints.

group_type names the grouped axis of [M, K] @ [K, N]: 0 the rows M (one [E, K, N] weight, or one [K, N] weight per
group), 2 the columns K of x (the result is [E, M, N]), -1 none (each x has a weight of its own). A group_list of
ints goes with group_type None and groups the rows. Source: op-plugin docs npu_grouped_matmul.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fusionkit.npu.constraint_checks import Arguments, Check, dtype_text, is_tensor, shape_text, sizes

MOST_TENSORS = 128

_SPLIT_ITEMS = {-1: (0, 1), 0: (2, 3), 2: (2, 3), None: (0, 1, 2, 3)}
_INT8 = torch.int8


def _texts(tensors: Sequence[Any]) -> str:
    shown = ", ".join(shape_text(tensor) for tensor in tensors[:3])
    return f"{shown}, ..." if len(tensors) > 3 else shown


def takes_ints(arguments: Arguments) -> bool:
    """Whether the call is for the overload with a group_list of ints, which has no tuning_config."""
    return isinstance(arguments["group_list"], list | tuple) or "tuning_config" not in arguments


def grouped_axis(arguments: Arguments) -> int | None:
    """group_type: -1, 0 or 2; for the overload with ints 0, or -1 without group_list; None if it is missing."""
    group_type: int | None = arguments["group_type"]
    if group_type is not None or not takes_ints(arguments):
        return group_type
    alone = arguments["group_list"] is None and (arguments["split_item"] or 0) in (0, 1)
    return -1 if alone else 0


def _one_weight_per_group(arguments: Arguments) -> bool:
    weight = arguments["weight"]
    return not (len(weight) == 1 and len(weight[0].shape) == 3)


def group_count(arguments: Arguments) -> int | None:
    """Number of groups by the weights; None with group_type 2, where only group_list defines it."""
    weight = arguments["weight"]
    if grouped_axis(arguments) == 2 or not weight:
        return None
    return len(weight) if _one_weight_per_group(arguments) else sizes(weight[0])[0]


def tensor_count(name: str) -> Check:
    """The list holds 1 to 128 tensors."""

    def check(arguments: Arguments) -> str | None:
        count = len(arguments[name])
        return None if 1 <= count <= MOST_TENSORS else str(count)

    return check


def list_dtypes(name: str, allowed: Callable[[Arguments, torch.dtype], bool]) -> Check:
    """All tensors of the list have the same dtype, one of the allowed ones."""

    def check(arguments: Arguments) -> str | None:
        dtypes = {tensor.dtype for tensor in arguments[name] or ()}
        right = len(dtypes) <= 1 and all(allowed(arguments, dtype) for dtype in dtypes)
        return None if right else ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))

    return check


def _quantized(arguments: Arguments) -> bool:
    return any(tensor.dtype == _INT8 for name in ("x", "weight") for tensor in arguments[name])


def weight_dtype(arguments: Arguments, dtype: torch.dtype) -> bool:
    """The dtype of x, or int8 with a half precision x."""
    x = arguments["x"]
    return not x or dtype in (x[0].dtype, _INT8)


def bias_dtype(arguments: Arguments, dtype: torch.dtype) -> bool:
    """float16 with float16, float32 with bfloat16 and float32; any with int8 weights."""
    x = arguments["x"]
    wanted = torch.float16 if x and x[0].dtype == torch.float16 else torch.float32
    return _quantized(arguments) or dtype == wanted


def group_type_given(arguments: Arguments) -> str | None:
    """-1, 0 or 2; None with a group_list of ints."""
    group_type, listed = arguments["group_type"], takes_ints(arguments)
    right = group_type is None if listed else group_type in (-1, 0, 2)
    return None if right else f"{group_type}{' with a group_list of ints' if listed else ''}"


def split_item_fits(arguments: Arguments) -> str | None:
    """0 and 1 give a tensor for each group, 2 and 3 one tensor."""
    group_type, split_item = arguments["group_type"], arguments["split_item"] or 0
    allowed = _SPLIT_ITEMS.get(group_type, (0, 1, 2, 3))
    return None if split_item in allowed else f"{split_item} with group_type {group_type}"


def x_form(arguments: Arguments) -> str | None:
    """x has 2 to 6 dimensions if it is not split, else 2; a single tensor if it is split along K."""
    x, mode = arguments["x"], grouped_axis(arguments)
    most = 6 if mode == -1 else 2
    right = all(2 <= len(tensor.shape) <= most for tensor in x) and (mode != 2 or len(x) == 1)
    return None if right else f"{_texts(x)} with group_type {arguments['group_type']}"


def x_layout(arguments: Arguments) -> str | None:
    """x is a transposed view if K is split, else not."""
    for tensor in arguments["x"]:
        if not hasattr(tensor, "stride") or len(tensor.shape) != 2 or min(map(_small, tensor.shape)) < 2:
            continue
        strides = tuple(tensor.stride())
        transposed = bool(strides[0] == 1 and strides[1] >= tensor.shape[0])
        if transposed != (grouped_axis(arguments) == 2):
            return (
                f"strides {list(strides)} of {shape_text(tensor)} with group_type {arguments['group_type']}"
            )
    return None


def _small(size: Any) -> int:
    return int(size) if isinstance(size, int) else 0  # unknown for a symbolic size


def weight_form(arguments: Arguments) -> str | None:
    """Weights are [K, N]; one [E, K, N] is allowed if rows are split; one [K, N] if K is split."""
    weight, mode = arguments["weight"], grouped_axis(arguments)
    ranks = [len(tensor.shape) for tensor in weight]
    flat = all(rank == 2 for rank in ranks)
    right = (
        len(weight) == 1 and flat
        if mode == 2
        else (flat and len(weight) >= 1) or (mode == 0 and ranks == [3])
    )
    return None if right else f"{_texts(weight)} with group_type {arguments['group_type']}"


def inner_sizes_agree(arguments: Arguments) -> str | None:
    """Every weight has the K of its x; a single x belongs to all weights."""
    x, weight = arguments["x"], arguments["weight"]
    if not x or not weight or len(x) not in (1, len(weight)):
        return f"{len(x)} x with {len(weight)} weights" if x and weight else None
    for place, tensor in enumerate(weight):
        left = x[place if len(x) > 1 else 0]
        if len(tensor.shape) < 2 or not len(left.shape):
            continue
        have, wanted = sizes(tensor)[-2], sizes(left)[-1]
        if have is not None and wanted is not None and have != wanted:
            return f"{shape_text(tensor)} with {shape_text(left)}"
    return None


def outer_sizes_agree(arguments: Arguments) -> str | None:
    """All weights have the same N if the result is a single tensor."""
    widths = {sizes(tensor)[-1] for tensor in arguments["weight"] if len(tensor.shape)} - {None}
    single = (arguments["split_item"] or 0) in (2, 3)
    return _texts(arguments["weight"]) if single and len(widths) > 1 else None


def bias_form(arguments: Arguments) -> str | None:
    """bias is None if K is split; else [N] for each weight, [E, N] for one [E, K, N]."""
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


def group_list_form(arguments: Arguments) -> str | None:
    """A group_list tensor is int64 with one value per group; a list has one int per group."""
    group_list, groups = arguments["group_list"], group_count(arguments)
    if group_list is None:
        return None
    if not is_tensor(group_list):
        return None if groups in (None, len(group_list)) else f"{len(group_list)} ints for {groups} groups"
    shape = sizes(group_list)
    right = group_list.dtype == torch.int64 and len(shape) == 1
    if right and (groups is None or shape[0] in (None, groups)):
        return None
    return f"{dtype_text(group_list)} {shape_text(group_list)}"


def group_list_given(arguments: Arguments) -> str | None:
    """group_list is None with group_type -1, and given if a single x is split."""
    group_list, mode = arguments["group_list"], grouped_axis(arguments)
    if mode == -1:
        return None if group_list is None else "one with group_type -1"
    whole = takes_ints(arguments) and len(arguments["weight"]) == 1
    missing = group_list is None and mode in (0, 2) and len(arguments["x"]) == 1 and not whole
    return f"None with group_type {arguments['group_type']}" if missing else None


def group_list_type_known(arguments: Arguments) -> str | None:
    """group_list_type is 0 (running sums) or 1 (counts), 2 with int8 only; a list holds running sums."""
    kind = arguments["group_list_type"] or 0
    listed = takes_ints(arguments)
    allowed = (0,) if listed else (0, 1, 2) if _quantized(arguments) else (0, 1)
    return None if kind in allowed else f"{kind}{' with a list' if listed else ''}"


def activation_needs_quantization(arguments: Arguments) -> str | None:
    """act_type is 0 without quantisation."""
    return None if not arguments["act_type"] or _quantized(arguments) else str(arguments["act_type"])


def output_dtype_fits(arguments: Arguments) -> str | None:
    """output_dtype is None or x's dtype without quantisation (a number in the default overload)."""
    wanted, x = arguments["output_dtype"], arguments["x"]
    if wanted is None or not x or _quantized(arguments):
        return None
    numbers = {torch.float16: 5, torch.float32: 6, torch.bfloat16: 15}  # torch's ScalarType
    return None if wanted in (x[0].dtype, numbers.get(x[0].dtype)) else str(wanted)


def needs_no_gradient(arguments: Arguments) -> str | None:
    """No tensor needs a gradient while gradients are recorded."""
    if not torch.is_grad_enabled():
        return None
    wanting = [
        name
        for name in ("x", "weight", "bias")
        if any(getattr(tensor, "requires_grad", False) for tensor in arguments[name] or ())
    ]
    return f"{' and '.join(wanting)} that need one" if wanting else None
