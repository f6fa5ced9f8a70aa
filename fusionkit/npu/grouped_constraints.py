"""Constraints of npu_grouped_matmul on Atlas A2 and A3."""

from __future__ import annotations

import torch

from fusionkit.npu import grouped_layouts as grouped
from fusionkit.npu.constraint_checks import FLOATS, Row

_GMM = "op-plugin docs npu_grouped_matmul"
_ACL_GMM = "ops-transformer docs aclnnGroupedMatmulV4"
_DERIVATIVES = "torch_npu 2.13 derivatives"

_GROUPED_ROWS: tuple[Row, ...] = (
    ("x", "must hold 1 to 128 tensors", _GMM, grouped.tensor_count("x")),
    ("weight", "must hold 1 to 128 tensors", _GMM, grouped.tensor_count("weight")),
    (
        "x",
        "must be float16, bfloat16, float32 or int8, all alike",
        _GMM,
        grouped.list_dtypes("x", lambda _, dtype: dtype in (*FLOATS, torch.int8)),
    ),
    (
        "weight",
        "must have the dtype of x, or int8, all alike",
        _GMM,
        grouped.list_dtypes("weight", grouped.weight_dtype),
    ),
    (
        "group_type",
        "must be -1, 0 or 2 (never left out), and None with a group_list of ints",
        _GMM,
        grouped.group_type_given,
    ),
    (
        "split_item",
        "must be 0 or 1 with group_type -1, and 2 or 3 with group_type 0 and 2",
        _GMM,
        grouped.split_item_fits,
    ),
    (
        "x",
        "must have 2 dimensions (up to 6 with group_type -1), and be one tensor with group_type 2",
        _GMM,
        grouped.x_form,
    ),
    (
        "x",
        "must be the transposed view of [K, M] with group_type 2, and no transposed view otherwise",
        _GMM,
        grouped.x_layout,
    ),
    (
        "weight",
        "must be [K, N] tensors; group_type 0 also takes one [E, K, N]; group_type 2 takes one [K, N]",
        _GMM,
        grouped.weight_form,
    ),
    ("weight", "must have the K of x, one x or one for each weight", _GMM, grouped.inner_sizes_agree),
    ("weight", "must have one N where the result is one tensor", _GMM, grouped.outer_sizes_agree),
    (
        "bias",
        "must be float16 with float16 x, else float32",
        _GMM,
        grouped.list_dtypes("bias", grouped.bias_dtype),
    ),
    (
        "bias",
        "must be [N] for each weight, [E, N] for one [E, K, N], and None with group_type 2",
        _ACL_GMM,
        grouped.bias_form,
    ),
    ("group_list", "must be int64 (or ints), one value for each group", _GMM, grouped.group_list_form),
    (
        "group_list",
        "must be None with group_type -1, and given where one x is split",
        _GMM,
        grouped.group_list_given,
    ),
    (
        "group_list_type",
        "must be 0 (running sums) or 1 (counts); a list of ints holds running sums",
        _GMM,
        grouped.group_list_type_known,
    ),
    ("act_type", "must be 0 without quantisation", _GMM, grouped.activation_needs_quantization),
    (
        "output_dtype",
        "must be None or the dtype of x without quantisation",
        _GMM,
        grouped.output_dtype_fits,
    ),
    (
        "x",
        "must not need a gradient, nor weight or bias: torch_npu has no derivative for the op, so an"
        " autograd.Function has to call it (the weight's gradient: group_type 2)",
        _DERIVATIVES,
        grouped.needs_no_gradient,
    ),
)

GROUPED_ROWS: dict[str, tuple[Row, ...]] = {
    "npu_grouped_matmul": _GROUPED_ROWS,
    "npu_grouped_matmul.List": _GROUPED_ROWS,
}
