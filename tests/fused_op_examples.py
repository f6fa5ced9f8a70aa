"""Calls that obey and that break the documented constraints: activations, attention, grouped products, MoE."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
BOOL, I32, I64 = torch.bool, torch.int32, torch.int64


def t(*shape: int, dtype: torch.dtype = F32, grad: bool = False) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=grad)


@dataclass(frozen=True)
class Example:
    """Arguments that obey every rule of op, and, per rule, the arguments that break it."""

    good: dict[str, Any]
    bad: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)


RANK9 = t(*[2] * 9)
FLOAT = "must be float16, bfloat16 or float32"
DIM = "must be in [-rank, rank - 1] of input"
EVEN = "must have an even size along dim"
FORM = "must be 0 (erf) or 1 (tanh)"
FALSE = "must be False"

GATES = {
    "npu_geglu": Example(
        {"input": t(2, 8).t(), "dim": 0},
        {
            ("input", FLOAT): [{"input": t(8, 2, dtype=F64)}],
            ("input", "must have 1 to 8 dimensions"): [{"input": t()}, {"input": RANK9}],
            ("dim", DIM): [{"dim": 2}, {"dim": -3}],
            ("input", EVEN): [{"input": t(7, 2)}, {"input": t(8, 3), "dim": 1}],
            ("approximate", FORM): [{"approximate": 2}, {"approximate": "tanh"}],
        },
    ),
    "npu_geglu_grad": Example(
        {"grad_output": t(2, 4), "input": t(2, 8), "gelu": t(2, 4)},
        {
            ("input", FLOAT): [{"input": t(2, 8, dtype=F64)}],
            ("dim", DIM): [{"dim": 2}],
            ("input", EVEN): [{"input": t(2, 7)}],
            ("grad_output", "must have the shape of input, halved along dim"): [{"grad_output": t(2, 8)}],
            ("gelu", "must have the shape of grad_output"): [{"gelu": t(4, 2)}],
            ("gelu", "must have the dtype of input"): [{"gelu": t(2, 4, dtype=F16)}],
            ("approximate", FORM): [{"approximate": -1}],
        },
    ),
    "npu_scaled_masked_softmax": Example(
        {"x": t(2, 3, 32, 64), "mask": t(2, 1, 32, 64, dtype=BOOL)},
        {
            ("x", FLOAT): [{"x": t(2, 3, 32, 64, dtype=F64)}],
            ("x", "must have 4 dimensions"): [{"x": t(3, 32, 64)}, {"x": t(1, 2, 3, 32, 64)}],
            ("x", "must have last two sizes of 32 to 4096, each a multiple of 32"): [
                {"x": t(2, 3, 32, 48), "mask": t(32, 48, dtype=BOOL)},
                {"x": t(2, 3, 16, 64), "mask": t(16, 64, dtype=BOOL)},
                {"x": t(1, 1, 32, 4128), "mask": t(32, 4128, dtype=BOOL)},
            ],
            ("mask", "must be bool"): [{"mask": t(32, 64)}, {"mask": t(32, 64, dtype=torch.uint8)}],
            ("mask", "must broadcast against x without enlarging it"): [
                {"mask": t(3, 1, 32, 64, dtype=BOOL)},
                {"mask": t(1, 2, 3, 32, 64, dtype=BOOL)},
            ],
            ("fixed_triu_mask", FALSE): [{"fixed_triu_mask": True}],
        },
    ),
    "npu_scaled_masked_softmax_backward": Example(
        {
            "y_grad": t(1, 1, 32, 32),
            "y": t(1, 1, 32, 32),
            "mask": t(32, 32, dtype=BOOL),
            "scale": 1.0,
            "fixed_triu_mask": False,
        },
        {
            ("y", FLOAT): [{"y": t(1, 1, 32, 32, dtype=F64)}],
            ("y_grad", "must have the shape of y"): [{"y_grad": t(1, 2, 32, 32)}],
            ("y_grad", "must have the dtype of y"): [{"y_grad": t(1, 1, 32, 32, dtype=F16)}],
            ("mask", "must be bool"): [{"mask": t(32, 32)}],
            ("fixed_triu_mask", FALSE): [{"fixed_triu_mask": True}],
        },
    ),
}

LETTERS = "must have one dimension for each letter of input_layout"
QUERY_DTYPE = "must have the dtype of query"
MASK = "must be BNSS, B1SS, 11SS or SS in sparse modes 0 and 1 (no other broadcast; TND: SS)"
TEMPLATE = "must be the [2048, 2048] template in sparse modes 2, 3, 4, 7 and 8, whatever S is"
WIDE = t(2, 4, 6, 769)

INPUTS: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("query", FLOAT): [{"query": t(2, 4, 5, 8, dtype=F64)}],
    ("input_layout", "must be 'BNSD', 'BSND', 'BSH', 'SBH' or 'TND'"): [
        {"input_layout": "BSNH"},
        {"input_layout": "bnsd"},
    ],
    ("query", LETTERS): [{"query": t(2, 5, 32)}, {"input_layout": "BSH"}],
    ("key", LETTERS): [{"key": t(2, 6, 16)}],
    ("value", LETTERS): [{"value": t(6, 2, 8)}],
    ("head_num", "must be query's N (or divide its H), 1 to 256"): [
        {"head_num": 2},
        {"head_num": 0},
        {
            "query": t(2, 5, 32),
            "key": t(2, 6, 16),
            "value": t(2, 6, 16),
            "head_num": 5,
            "input_layout": "BSH",
        },
        {"query": t(1, 257, 5, 8), "key": t(1, 1, 6, 8), "value": t(1, 1, 6, 8), "head_num": 257},
    ],
    ("key", QUERY_DTYPE): [{"key": t(2, 2, 6, 8, dtype=BF16)}],
    ("key", "must have query's batch B"): [{"key": t(1, 2, 6, 8)}],
    ("key", "must have a number of heads that divides query's"): [
        {"key": t(2, 3, 6, 8), "value": t(2, 3, 6, 8)},
        {"key": t(2, 8, 6, 8), "value": t(2, 8, 6, 8)},
        {"query": t(2, 5, 32), "key": t(2, 6, 12), "value": t(2, 6, 12), "input_layout": "BSH"},
    ],
    ("key", "must have query's head size D, 1 to 768"): [
        {"key": t(2, 2, 6, 4)},
        {"query": WIDE, "key": WIDE, "value": WIDE},
    ],
    ("value", QUERY_DTYPE): [{"value": t(2, 2, 6, 8, dtype=BF16)}],
    ("value", "must have key's shape, with a head size D no larger"): [
        {"value": t(2, 2, 5, 8)},
        {"value": t(2, 2, 6, 16)},
        {"query": t(2, 5, 32), "key": t(2, 6, 16), "value": t(2, 6, 32), "input_layout": "BSH"},
    ],
}
QKV = {
    "query": t(2, 4, 5, 8),
    "key": t(2, 2, 6, 8),
    "value": t(2, 2, 6, 8),
    "head_num": 4,
    "input_layout": "BNSD",
}
PACKED = {"query": t(5, 4, 8), "key": t(6, 2, 8), "value": t(6, 2, 8), "input_layout": "TND"}
LONG = {"query": t(1, 1, 2000, 8), "key": t(1, 1, 2000, 8), "value": t(1, 1, 2000, 8), "head_num": 1}

ATTENTION = {
    "npu_fusion_attention": Example(
        QKV,
        {
            **INPUTS,
            ("pse", QUERY_DTYPE): [{"pse": t(2, 4, 5, 6, dtype=F16)}],
            ("pse", "must be BNSS, BN1S or 1NSS (above S 1024 also its last 1024 rows)"): [
                {"pse": t(5, 6)},
                {"pse": t(1, 1, 5, 6)},
                {"pse": t(1, 4, 1, 6)},
                {"pse": t(2, 4, 1024, 6)},
                {**LONG, "pse": t(1, 1, 1000, 2000)},
            ],
            ("padding_mask", "must be None"): [{"padding_mask": t(2, 6)}],
            ("atten_mask", "must be bool or uint8"): [{"atten_mask": t(5, 6)}],
            ("atten_mask", MASK): [
                {"atten_mask": t(2, 1, 1, 6, dtype=BOOL)},
                {"atten_mask": t(2, 4, 1, 6, dtype=BOOL)},
                {"atten_mask": t(1, 4, 5, 6, dtype=BOOL)},
                {"atten_mask": t(2, 2, 5, 6, dtype=BOOL)},
                {"atten_mask": t(2, 5, 6, dtype=BOOL)},
                {"atten_mask": t(6, 5, dtype=BOOL)},
                {"atten_mask": t(2048, 2048, dtype=BOOL)},
                {"atten_mask": t(2, 1, 1, 6, dtype=BOOL), "sparse_mode": 1},
            ],
            ("atten_mask", TEMPLATE): [
                {"atten_mask": t(5, 6, dtype=BOOL), "sparse_mode": mode} for mode in (2, 3, 4)
            ],
            ("atten_mask", "must be BNSS or B1SS in sparse mode 5, [3072, 2048] in sparse mode 6"): [
                {"atten_mask": t(5, 6, dtype=BOOL), "sparse_mode": 5},
                {"atten_mask": t(2048, 2048, dtype=BOOL), "sparse_mode": 6},
            ],
            ("keep_prob", "must be above 0 and at most 1"): [{"keep_prob": 0.0}, {"keep_prob": 1.1}],
            ("sparse_mode", "must be 0 to 6 (TND: 0 to 8 without 5)"): [
                {"sparse_mode": 7},
                {"sparse_mode": -1},
                {**PACKED, "actual_seq_qlen": [5], "actual_seq_kvlen": [6], "sparse_mode": 5},
            ],
            (
                "pre_tockens",
                "must leave a band with next_tockens where a mask is given in sparse modes 0 and 4",
            ): [
                {"atten_mask": t(5, 6, dtype=BOOL), "pre_tockens": 2, "next_tockens": -3},
                {"atten_mask": t(5, 6, dtype=BOOL), "pre_tockens": 9, "next_tockens": -6},
                {"atten_mask": t(5, 6, dtype=BOOL), "pre_tockens": -5, "next_tockens": 9},
            ],
            ("actual_seq_qlen", "must be given with TND, and actual_seq_kvlen as many values"): [
                PACKED,
                {**PACKED, "actual_seq_qlen": [2, 5], "actual_seq_kvlen": [6]},
            ],
            ("softmax_layout", "must be '', or 'TND' with TND"): [
                {"softmax_layout": "TND"},
                {"softmax_layout": "NTD"},
            ],
            ("sink", "must be float32 of shape [head_num]"): [{"sink": t(2)}, {"sink": t(4, dtype=F16)}],
        },
    ),
    "npu_fusion_attention_grad": Example(
        {**QKV, "dy": t(2, 4, 5, 8), "softmax_max": t(2, 4, 5, 8), "softmax_sum": t(2, 4, 5, 8)},
        {
            **INPUTS,
            ("dy", QUERY_DTYPE): [{"dy": t(2, 4, 5, 8, dtype=F16)}],
            ("dy", LETTERS): [{"dy": t(2, 5, 32)}],
            ("softmax_max", "must be given"): [{"softmax_max": None}],
            ("softmax_max", "must be float32"): [{"softmax_max": t(2, 4, 5, 8, dtype=F16)}],
            ("softmax_sum", "must be given"): [{"softmax_sum": None}],
            ("softmax_sum", "must be float32"): [{"softmax_sum": t(2, 4, 5, 8, dtype=F16)}],
        },
    ),
}

X, W = [t(6, 4)], [t(3, 4, 5)]
GROUPS = t(3, dtype=I64)
COUNT = "must hold 1 to 128 tensors"
GROUP_TYPE = "must be -1, 0 or 2 (never left out), and None with a group_list of ints"
SPLIT_ITEM = "must be 0 or 1 with group_type -1, and 2 or 3 with group_type 0 and 2"
X_FORM = "must have 2 dimensions (up to 6 with group_type -1), and be one tensor with group_type 2"
X_LAYOUT = "must be the transposed view of [K, M] with group_type 2, and no transposed view otherwise"
W_FORM = "must be [K, N] tensors; group_type 0 also takes one [E, K, N]; group_type 2 takes one [K, N]"
B_FORM = "must be [N] for each weight, [E, N] for one [E, K, N], and None with group_type 2"
GIVEN = "must be None with group_type -1, and given where one x is split"
LIST_TYPE = "must be 0 (running sums) or 1 (counts); a list of ints holds running sums"
GRADIENT = (
    "must not need a gradient, nor weight or bias: torch_npu has no derivative for the op, so an"
    " autograd.Function has to call it (the weight's gradient: group_type 2)"
)
PAIRS = {"x": [t(2, 3, 4), t(1, 2, 4)], "weight": [t(4, 5), t(4, 2)], "group_type": -1, "split_item": 0}
ALONE = {**PAIRS, "group_list": None}
K_SPLIT = {"x": [t(6, 4).t()], "weight": [t(6, 5)], "group_type": 2, "split_item": 3}

SHARED: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("x", COUNT): [{"x": []}, {"x": X * 129}],
    ("weight", COUNT): [{"weight": []}, {"weight": [t(4, 5)] * 129}],
    ("x", "must be float16, bfloat16, float32 or int8, all alike"): [
        {"x": [t(6, 4, dtype=F64)]},
        {"x": [t(6, 4), t(6, 4, dtype=F16)]},
    ],
    ("weight", "must have the dtype of x, or int8, all alike"): [{"weight": [t(3, 4, 5, dtype=BF16)]}],
    ("weight", "must have the K of x, one x or one for each weight"): [
        {"weight": [t(3, 5, 4)]},
        {"x": [t(6, 4)] * 2, "weight": [t(4, 5)] * 3},
    ],
    ("weight", "must have one N where the result is one tensor"): [
        {"weight": [t(4, 5), t(4, 5), t(4, 6)], "split_item": 2}
    ],
    ("bias", "must be float16 with float16 x, else float32"): [
        {"bias": [t(3, 5, dtype=F16)]},
        {"x": [t(6, 4, dtype=BF16)], "weight": [t(3, 4, 5, dtype=BF16)], "bias": [t(3, 5, dtype=BF16)]},
    ],
    ("x", GRADIENT): [
        {"x": [t(6, 4, grad=True)]},
        {"weight": [t(3, 4, 5, grad=True)]},
        {"bias": [t(3, 5, grad=True)]},
    ],
    ("act_type", "must be 0 without quantisation"): [{"act_type": 5}],
    ("output_dtype", "must be None or the dtype of x without quantisation"): [{"output_dtype": F16}],
}

GROUPED = {
    "npu_grouped_matmul": Example(
        {"x": X, "weight": W, "group_list": GROUPS, "split_item": 2, "group_type": 0},
        {
            **SHARED,
            ("group_type", GROUP_TYPE): [{"group_type": None}, {"group_type": 1}],
            ("split_item", SPLIT_ITEM): [{"split_item": 0}, {**ALONE, "split_item": 2}],
            ("x", X_FORM): [
                {"x": [t(2, 3, 4)]},
                {**ALONE, "x": [t(4), t(2, 4)]},
                {**K_SPLIT, "x": [t(6, 4).t()] * 2, "weight": [t(6, 5)] * 2},
            ],
            ("x", X_LAYOUT): [{"x": [t(4, 6).t()]}, {**K_SPLIT, "x": [t(4, 6)]}],
            ("weight", W_FORM): [
                {"weight": [t(3, 4, 5)] * 2},
                {"weight": [t(5)]},
                {**ALONE, "weight": [t(3, 4, 5)]},
                {**K_SPLIT, "weight": [t(3, 6, 5)]},
            ],
            ("bias", B_FORM): [
                {"bias": [t(5)]},
                {"bias": [t(3, 5)] * 3},
                {**ALONE, "bias": [t(5), t(5)]},
                {**K_SPLIT, "bias": [t(5)]},
            ],
            ("group_list", "must be int64 (or ints), one value for each group"): [
                {"group_list": t(3, dtype=I32)},
                {"group_list": t(2, dtype=I64)},
                {"group_list": t(3, 2, dtype=I64)},
            ],
            ("group_list", GIVEN): [{"group_list": None}, {**PAIRS, "group_list": GROUPS}],
            ("group_list_type", LIST_TYPE): [{"group_list_type": 2}, {"group_list_type": 3}],
        },
    ),
    "npu_grouped_matmul.List": Example(
        {"x": X, "weight": [t(4, 5)] * 3, "group_list": [1, 3, 6]},
        {
            **SHARED,
            ("group_type", GROUP_TYPE): [{"group_type": 0}],
            ("split_item", SPLIT_ITEM): [{"split_item": 4}],
            ("x", X_FORM): [{"x": [t(2, 3, 4)]}],
            ("x", X_LAYOUT): [{"x": [t(4, 6).t()]}],
            ("weight", W_FORM): [{"weight": [t(5)] * 3}],
            ("bias", B_FORM): [{"bias": [t(5)] * 2}, {"bias": [t(4)] * 3}],
            ("bias", "must be float16 with float16 x, else float32"): [{"bias": [t(5, dtype=F16)] * 3}],
            ("group_list", "must be int64 (or ints), one value for each group"): [{"group_list": [1, 6]}],
            ("group_list", GIVEN): [{"group_list": None, "split_item": 2}],
            ("group_list_type", LIST_TYPE): [{"group_list_type": 1}],
        },
    ),
}

TWO = "must have 2 dimensions"
ONE_FOR_EACH = "must have as many values as sorted_indices"
TOP_K = "must have at most 512 experts a token"
SORTED: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("sorted_indices", "must be int32"): [{"sorted_indices": t(8, dtype=I64)}],
    ("sorted_indices", "must have 1 dimension"): [{"sorted_indices": t(4, 2, dtype=I32)}],
}
UNPERMUTE = Example(
    {"permuted_tokens": t(8, 3), "sorted_indices": t(8, dtype=I32), "probs": t(4, 2, dtype=F32)},
    {
        **SORTED,
        ("permuted_tokens", FLOAT): [{"permuted_tokens": t(8, 3, dtype=F64)}],
        ("permuted_tokens", TWO): [{"permuted_tokens": t(8, 3, 1)}],
        ("probs", FLOAT): [{"probs": t(4, 2, dtype=I32)}],
        ("probs", TWO): [{"probs": t(8)}],
        ("probs", ONE_FOR_EACH): [{"probs": t(8, 2)}],
        ("probs", TOP_K): [{"probs": t(1, 513), "sorted_indices": t(513, dtype=I32)}],
        ("padded_mode", FALSE): [{"padded_mode": True}],
        ("restore_shape", "must be None"): [{"restore_shape": [4, 3]}],
    },
)
MOE = {
    "npu_moe_token_permute": Example(
        {"tokens": t(4, 3), "indices": t(4, 2, dtype=I64)},
        {
            ("tokens", FLOAT): [{"tokens": t(4, 3, dtype=torch.int8)}],
            ("tokens", TWO): [{"tokens": t(2, 2, 3)}],
            ("indices", "must be int32 or int64"): [{"indices": t(4, 2)}],
            ("indices", "must have 1 or 2 dimensions"): [{"indices": t(4, 2, 1, dtype=I64)}],
            ("indices", "must have a row for each token"): [{"indices": t(2, 4, dtype=I64)}],
            ("indices", TOP_K): [{"indices": t(4, 513, dtype=I64)}],
            ("num_out_tokens", "must not cut off more rows than there are"): [{"num_out_tokens": -9}],
            ("padded_mode", FALSE): [{"padded_mode": True}],
        },
    ),
    "npu_moe_token_permute_grad_v2": Example(
        {
            "grad_permuted_tokens": t(7, 3),
            "sorted_indices": t(8, dtype=I32),
            "tokens_size_0": 4,
            "tokens_dtype": F32,
            "num_topK": 2,
        },
        {
            **SORTED,
            ("grad_permuted_tokens", FLOAT): [{"grad_permuted_tokens": t(7, 3, dtype=F64)}],
            ("grad_permuted_tokens", TWO): [{"grad_permuted_tokens": t(21)}],
            ("sorted_indices", "must have tokens_size_0 * num_topK values"): [{"num_topK": 3}],
            ("padded_mode", FALSE): [{"padded_mode": True}],
        },
    ),
    "npu_moe_token_unpermute": UNPERMUTE,
    "_npu_moe_token_unpermute": UNPERMUTE,
    "npu_moe_token_unpermute_grad_v2": Example(
        {
            "grad_unpermuted_tokens": t(4, 3),
            "sorted_indices": t(8, dtype=I32),
            "permuted_tokens_size_0": 8,
            "permuted_tokens_dtype": F32,
            "probs": t(4, 2),
            "permuted_tokens": t(8, 3),
        },
        {
            **SORTED,
            ("grad_unpermuted_tokens", FLOAT): [{"grad_unpermuted_tokens": t(4, 3, dtype=F64)}],
            ("grad_unpermuted_tokens", TWO): [{"grad_unpermuted_tokens": t(12)}],
            ("probs", TWO): [{"probs": t(8)}],
            ("probs", ONE_FOR_EACH): [{"probs": t(4, 3)}],
            ("permuted_tokens", "must have the dtype of grad_unpermuted_tokens"): [
                {"permuted_tokens": t(8, 3, dtype=F16)}
            ],
            ("padded_mode", FALSE): [{"padded_mode": True}],
        },
    ),
}
FUSED_OP_EXAMPLES: dict[str, Example] = {**GATES, **ATTENTION, **GROUPED, **MOE}
