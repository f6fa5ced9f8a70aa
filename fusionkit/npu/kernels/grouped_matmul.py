"""npu_grouped_matmul without quantisation. Formulas: op-plugin docs npu_grouped_matmul."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from fusionkit.errors import MisuseError
from fusionkit.npu.grouped_constraints import grouped_axis
from fusionkit.npu.kernels.op_kernel import NoBackward, OpKernel

Tensor = torch.Tensor

_OP = "npu_grouped_matmul"
_QUANTIZED = ("scale", "offset", "antiquant_scale", "antiquant_offset", "per_token_scale")


def _refuse_quantization(arguments: dict[str, Any]) -> None:
    given = [name for name in _QUANTIZED if arguments[name]]
    dtypes = {tensor.dtype for tensor in (*arguments["x"], *arguments["weight"])}
    if given or torch.int8 in dtypes:
        what = ", ".join(given) or "int8 tensors"
        raise MisuseError(f"{_OP}: target cpu computes it without quantisation only, got {what}")


def _bounds(arguments: dict[str, Any], total: int) -> list[int]:
    """Start and end of each group along the grouped axis of size total.

    Raises MisuseError unless group_list increases from 0 to total: the device leaves rows after the last group
    uncomputed, and counts given as running sums (or the reverse) are detected here.
    """
    group_list = arguments["group_list"]
    counts = isinstance(group_list, Tensor) and arguments["group_list_type"] == 1
    values = [int(value) for value in group_list]
    ends = torch.tensor(values, dtype=torch.int64).cumsum(0).tolist() if counts else values
    bounds = [0, *ends]
    if any(low > high for low, high in pairwise(bounds)) or bounds[-1] != total:
        kind = "counts (group_list_type 1)" if counts else "running sums (group_list_type 0)"
        raise MisuseError(
            f"{_OP}: group_list {values} read as {kind} must rise to the {total} rows of the grouped axis"
        )
    return bounds


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x @ weight + bias in float32, rounded once to x's dtype."""
    result = x.float() @ weight.float()
    return (result if bias is None else result + bias.float()).to(x.dtype)


def _split_along_k(arguments: dict[str, Any]) -> list[Tensor]:
    (x,), (weight,) = arguments["x"], arguments["weight"]
    bounds = _bounds(arguments, x.shape[1])
    parts = [_product(x[:, low:high], weight[low:high], None) for low, high in pairwise(bounds)]
    return [torch.stack(parts)]


def _rows_of_groups(arguments: dict[str, Any]) -> list[Tensor]:
    x = arguments["x"]
    if len(x) == 1 and arguments["group_list"] is not None:
        return [x[0][low:high] for low, high in pairwise(_bounds(arguments, x[0].shape[0]))]
    if arguments["group_list"] is not None:
        bounds = _bounds(arguments, sum(part.shape[0] for part in x))
        if [high - low for low, high in pairwise(bounds)] != [part.shape[0] for part in x]:
            raise MisuseError(f"{_OP}: group_list must give the rows of each x, got groups at {bounds}")
    return list(x)


def grouped_matmul(**arguments: Any) -> list[Tensor]:
    """x_i @ weight_i + bias_i for each group, as a LIST: one tensor per group, or a single one.

    group_type 0 splits the rows of x [M, K] by group_list, with weight [E, K, N] or a list of [K, N]; split_item
    2 and 3 give [M, N], 0 and 1 (group_list of ints) one tensor per group. group_type -1 pairs each x with its
    weight. group_type 2 splits x [M, K] and weight [K, N] along K and gives [E, M, N], zeros for a group of 0.
    group_list holds running sums (group_list_type 0, and any list of ints) or counts (1).
    float32 inside, one rounding. Raises MisuseError for quantised calls and a group_list that does not fit.
    """
    _refuse_quantization(arguments)
    if grouped_axis(arguments) == 2:
        return _split_along_k(arguments)
    weights = arguments["weight"]
    single = len(weights) == 1 and weights[0].dim() == 3
    matrices = list(weights[0]) if single else list(weights)
    bias = arguments["bias"]
    biases = [None] * len(matrices) if not bias else list(bias[0]) if single else list(bias)
    rows = _rows_of_groups(arguments)
    results = [_product(*parts) for parts in zip(rows, matrices, biases, strict=True)]
    return [torch.cat(results)] if arguments["split_item"] in (2, 3) else results


def _fake_grouped_matmul(**arguments: Any) -> list[Tensor]:
    x, weight, group_list = arguments["x"], arguments["weight"], arguments["group_list"]
    width = weight[0].shape[-1]
    if grouped_axis(arguments) == 2:
        return [x[0].new_empty((group_list.shape[0], x[0].shape[0], width))]
    if arguments["split_item"] in (2, 3):
        return [x[0].new_empty((sum(part.shape[0] for part in x), width))]
    if len(x) == len(weight):
        return [
            part.new_empty((*part.shape[:-1], matrix.shape[-1]))
            for part, matrix in zip(x, weight, strict=True)
        ]
    rows = [high - low for low, high in pairwise([0, *group_list])]
    return [x[0].new_empty((count, matrix.shape[-1])) for count, matrix in zip(rows, weight, strict=True)]


_NO_BACKWARD = NoBackward(
    "torch_npu has no backward for it; call it in an autograd.Function whose backward calls it again (for the"
    " weight with group_type 2 and split_item 3)"
)

KERNELS = tuple(
    OpKernel(op, grouped_matmul, _fake_grouped_matmul, _NO_BACKWARD) for op in (_OP, f"{_OP}.List")
)
