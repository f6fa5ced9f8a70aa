"""One or more calls of every op of target cpu, for tests that look at the ops as the dispatcher does."""

from __future__ import annotations

from typing import Any

import torch

from fusionkit.npu.schemas import SCHEMAS

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32


def operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(
        getattr(torch.ops.npu if name in SCHEMAS else torch.ops.fusionkit, packet), overload or "default"
    )


def r(*shape: int, dtype: torch.dtype = F32, grad: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype).requires_grad_(grad)


UPPER = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
PACKED = {"actual_seq_qlen": [2, 5], "actual_seq_kvlen": [4, 6]}
SAVED = {"softmax_max": r(2, 4, 5, 8), "softmax_sum": r(2, 4, 5, 8) + 9.0}
COUNTS = {"group_list": torch.tensor([1, 0, 5]), "group_list_type": 1}
EXPERTS = torch.tensor([[0, 1], [1, 0], [0, 2], [2, 0]])
BACK = torch.tensor([0, 4, 5, 1, 2, 6, 7, 3], dtype=torch.int32)


def attention(layout: str, grad: bool) -> tuple[Any, ...]:
    """Positional arguments of a call with 4 heads of query and 2 of key and value."""
    return r(2, 5, 32, grad=grad), r(2, 6, 16, grad=grad), r(2, 6, 16, grad=grad), 4, layout


Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def calls(grad: bool) -> list[Call]:
    """One or more calls per op; grad marks the inputs that torch_npu has a derivative for."""
    table = (1, 1, 4, 6)
    return [
        ("npu_rms_norm", (r(2, 3, 8, grad=grad), r(8, grad=grad)), {}),
        ("npu_rms_norm", (r(2, 3, 8, dtype=BF16), r(3, 8)), {"epsilon": 1e-5}),
        ("npu_rms_norm_backward", (r(2, 8, dtype=F16), r(2, 8, dtype=F16), r(8, dtype=F16), r(2, 1)), {}),
        ("npu_add_rms_norm", (r(2, 8, dtype=BF16), r(2, 8, dtype=BF16), r(8, dtype=BF16)), {}),
        ("npu_rotary_mul", (r(2, 3, 4, 6, grad=grad), r(*table, grad=grad), r(*table, grad=grad)), {}),
        ("npu_rotary_mul", (r(2, 3, 4, 6, dtype=BF16), r(*table), r(*table), "interleave"), {}),
        ("npu_rotary_mul", (r(2, 3, 4, 6), r(*table), r(*table)), {"rotate": r(6, 6)}),
        ("npu_rotary_mul_backward", (r(2, 3, 4, 6), r(2, 3, 4, 6), r(*table), r(*table), "interleave"), {}),
        ("npu_swiglu", (r(2, 8, grad=grad),), {}),
        ("npu_swiglu", (r(4, 3, dtype=F16), 0), {}),
        ("npu_swiglu_backward", (r(2, 4), r(2, 8)), {}),
        ("npu_gelu", (r(3, 4, grad=grad),), {"approximate": "tanh"}),
        ("npu_gelu", (r(3, 4, dtype=BF16).t(),), {}),
        ("npu_gelu_backward", (r(3, 4), r(3, 4)), {"approximate": "tanh"}),
        ("npu_fast_gelu", (r(3, 4, grad=grad),), {}),
        ("npu_fast_gelu_backward", (r(3, 4), r(3, 4)), {}),
        ("_npu_dtype_cast", (r(3, 4, grad=grad), BF16), {}),
        ("_npu_dtype_cast_backward", (r(3, 4, dtype=BF16), F32), {}),
        ("npu_geglu", (r(2, 8, grad=grad),), {}),
        ("npu_geglu", (r(4, 3, dtype=F16), 0, 0, True), {}),
        ("npu_geglu_grad", (r(2, 4), r(2, 8), r(2, 4), -1, 1), {}),
        ("npu_scaled_masked_softmax", (r(1, 2, 32, 64, grad=grad), r(32, 64) > 0, 0.5), {}),
        (
            "npu_scaled_masked_softmax_backward",
            (r(1, 1, 32, 32), r(1, 1, 32, 32), r(32, 32) > 0, 2, False),
            {},
        ),
        ("npu_fusion_attention", (*[r(2, 4, 5, 8, grad=grad)] * 3, 4, "BNSD"), {"scale": 0.3}),
        ("npu_fusion_attention", attention("BSH", grad), {"atten_mask": UPPER, "sparse_mode": 3}),
        ("npu_fusion_attention", (r(5, 4, 8, dtype=BF16), *[r(6, 2, 8, dtype=BF16)] * 2, 4, "TND"), PACKED),
        ("npu_fusion_attention_grad", (*[r(2, 4, 5, 8)] * 4, 4, "BNSD"), {**SAVED, "sink": r(4)}),
        ("npu_grouped_matmul", ([r(6, 4)], [r(3, 4, 5)]), {**COUNTS, "split_item": 2, "group_type": 0}),
        ("npu_grouped_matmul", ([r(6, 4).t()], [r(6, 5)]), {**COUNTS, "split_item": 3, "group_type": 2}),
        ("npu_grouped_matmul", ([r(2, 3, 4), r(1, 6, 4)], [r(4, 5), r(4, 2)]), {"group_type": -1}),
        ("npu_grouped_matmul.List", ([r(6, 4)], [r(4, 5), r(4, 3)]), {"group_list": [2, 6]}),
        ("npu_moe_token_permute", (r(4, 3, grad=grad), EXPERTS), {}),
        ("npu_moe_token_permute", (r(4, 3, dtype=BF16), EXPERTS.int(), 5), {}),
        ("npu_moe_token_permute_grad_v2", (r(8, 3), BACK, 4, BF16, 2), {}),
        ("npu_moe_token_unpermute", (r(8, 3, grad=grad), BACK, r(4, 2, grad=grad)), {}),
        ("npu_moe_token_unpermute", (r(8, 3, dtype=F16), BACK), {}),
        ("_npu_moe_token_unpermute", (r(8, 3, grad=grad), BACK, r(4, 2, grad=grad)), {}),
        ("npu_moe_token_unpermute_grad_v2", (r(4, 3), BACK, 7, F32, r(4, 2)), {"permuted_tokens": r(7, 3)}),
        ("npu_moe_token_unpermute_grad_v2", (r(8, 3), BACK, 8, F32), {}),
        ("layer_norm_scale_shift", (r(2, 3, 8, grad=grad), r(2, 1, 8, grad=grad), r(8, grad=grad)), {}),
    ]
