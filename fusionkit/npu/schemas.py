"""Operator schemas: torch_npu's own, as registered by its library, and those of the kit's ops."""

from __future__ import annotations

import functools
import re
from typing import Any

import torch

from fusionkit.errors import MisuseError

# Schema strings of torch_npu 2.13.0, as its shared library libtorch_npu.so registers them with the dispatcher
# (plain strings in the library). The wheel's csrc/aten/npu_native_functions_by_codegen.yaml calls the first argument
# `self`; the registered name, which callers use, is `input`.
# An indented line goes on with the schema of the line before.
_SCHEMAS = """
npu_rms_norm(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)
npu_rms_norm_backward(Tensor dy, Tensor input, Tensor gamma, Tensor rstd) -> (Tensor, Tensor)
npu_add_rms_norm(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor, Tensor)
npu_rotary_mul(Tensor input, Tensor r1, Tensor r2, str rotary_mode='half', Tensor? rotate=None) -> Tensor
npu_rotary_mul_backward(Tensor grad, Tensor input, Tensor r1, Tensor r2, str rotary_mode='half')
    -> (Tensor, Tensor, Tensor)
npu_swiglu(Tensor input, int dim=-1) -> Tensor
npu_swiglu_backward(Tensor grad_output, Tensor input, int dim=-1) -> Tensor
npu_gelu(Tensor input, *, str approximate='none') -> Tensor
npu_gelu_backward(Tensor grad_output, Tensor input, *, str approximate='none') -> Tensor
npu_fast_gelu(Tensor input) -> Tensor
npu_fast_gelu_backward(Tensor grad, Tensor input) -> Tensor
_npu_dtype_cast(Tensor input, ScalarType dtype) -> Tensor
_npu_dtype_cast_backward(Tensor grad, ScalarType dtype) -> Tensor
npu_geglu(Tensor input, int dim=-1, int approximate=1, bool activate_left=False) -> (Tensor, Tensor)
npu_geglu_grad(Tensor grad_output, Tensor input, Tensor gelu, int dim=-1, int approximate=1,
    bool activate_left=False) -> Tensor
npu_scaled_masked_softmax(Tensor x, Tensor mask, Scalar scale=1, bool fixed_triu_mask=False) -> Tensor
npu_scaled_masked_softmax_backward(Tensor y_grad, Tensor y, Tensor mask, Scalar scale, bool fixed_triu_mask)
    -> Tensor
npu_fusion_attention(Tensor query, Tensor key, Tensor value, int head_num, str input_layout,
    Tensor? pse=None, Tensor? padding_mask=None, Tensor? atten_mask=None, float scale=1.,
    float keep_prob=1., int pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0,
    int[]? prefix=None, int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, int sparse_mode=0,
    bool gen_mask_parallel=True, bool sync=False, str softmax_layout="", Tensor? sink=None,
    Tensor? dropout_mask=None, int seed=0, int offset=0) -> (Tensor, Tensor, Tensor, Tensor, int, int, int)
npu_fusion_attention_grad(Tensor query, Tensor key, Tensor value, Tensor dy, int head_num, str input_layout,
    *, Tensor? pse=None, Tensor? padding_mask=None, Tensor? atten_mask=None, Tensor? softmax_max=None,
    Tensor? softmax_sum=None, Tensor? softmax_in=None, Tensor? attention_in=None, float scale_value=1.,
    float keep_prob=1., int pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0,
    int seed=0, int offset=0, int numels=0, int[]? prefix=None, int[]? actual_seq_qlen=None,
    int[]? actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, bool sync=False,
    str softmax_layout="", Tensor? sink=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor)
npu_grouped_matmul(Tensor[] x, Tensor[] weight, *, Tensor[]? bias=None, Tensor[]? scale=None,
    Tensor[]? offset=None, Tensor[]? antiquant_scale=None, Tensor[]? antiquant_offset=None,
    Tensor[]? per_token_scale=None, Tensor? group_list=None, Tensor[]? activation_input=None,
    Tensor[]? activation_quant_scale=None, Tensor[]? activation_quant_offset=None, int? split_item=0,
    int? group_type=None, int? group_list_type=0, int? act_type=0, int[]? tuning_config=None,
    int? output_dtype=None, int? x_dtype=None, int? weight_dtype=None, int? scale_dtype=None,
    int? per_token_scale_dtype=None) -> Tensor[]
npu_grouped_matmul.List(Tensor[] x, Tensor[] weight, *, Tensor[]? bias=None, Tensor[]? scale=None,
    Tensor[]? offset=None, Tensor[]? antiquant_scale=None, Tensor[]? antiquant_offset=None,
    Tensor[]? per_token_scale=None, int[]? group_list=None, Tensor[]? activation_input=None,
    Tensor[]? activation_quant_scale=None, Tensor[]? activation_quant_offset=None, int? split_item=0,
    int? group_type=None, int? group_list_type=0, int? act_type=0, ScalarType? output_dtype=None)
    -> Tensor[]
npu_moe_token_permute(Tensor tokens, Tensor indices, int? num_out_tokens=None, bool padded_mode=False)
    -> (Tensor, Tensor)
npu_moe_token_permute_grad_v2(Tensor grad_permuted_tokens, Tensor sorted_indices, SymInt tokens_size_0,
    ScalarType tokens_dtype, SymInt num_topK, bool padded_mode=False) -> Tensor
npu_moe_token_unpermute(Tensor permuted_tokens, Tensor sorted_indices, Tensor? probs=None,
    bool padded_mode=False, int[]? restore_shape=None) -> Tensor
_npu_moe_token_unpermute(Tensor permuted_tokens, Tensor sorted_indices, Tensor? probs=None,
    bool padded_mode=False, int[]? restore_shape=None)
    -> (Tensor unpermuted_tokens, Tensor permuted_tokens_for_backward)
npu_moe_token_unpermute_grad_v2(Tensor grad_unpermuted_tokens, Tensor sorted_indices,
    SymInt permuted_tokens_size_0, ScalarType permuted_tokens_dtype, Tensor? probs=None,
    bool padded_mode=False, int[]? restore_shape=None, Tensor? permuted_tokens=None) -> (Tensor, Tensor)
"""

# Name with overload -> schema.
SCHEMAS: dict[str, str] = {
    schema.partition("(")[0]: " ".join(schema.split()) for schema in re.split(r"\n(?=\S)", _SCHEMAS.strip())
}

# Ops that a graph pass must not merge or recompute, by torch_npu's tags.
SEEDED: frozenset[str] = frozenset({"npu_fusion_attention"})

# The kit's own ops, in the namespace `fusionkit`, for fusions without an op of torch_npu.
KIT_SCHEMAS: dict[str, str] = {
    "layer_norm_scale_shift": (
        "layer_norm_scale_shift(Tensor x, Tensor scale, Tensor shift, float eps=1e-06) -> Tensor"
    ),
}


@functools.cache
def parsed_schema(op: str) -> Any:
    """The `torch.FunctionSchema` of op, a key of SCHEMAS or KIT_SCHEMAS; KeyError for any other name."""
    if op in SCHEMAS:
        return torch._C.parse_schema(f"npu::{SCHEMAS[op]}")
    return torch._C.parse_schema(f"fusionkit::{KIT_SCHEMAS[op]}")


def bind(op: str, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Argument name -> value of a call of op, with the schema's defaults.

    Raises MisuseError with op and argument if the call does not fit the schema.
    """
    arguments = parsed_schema(op).arguments
    positional = [argument.name for argument in arguments if not argument.kwarg_only]
    if len(args) > len(positional):
        raise MisuseError(f"{op}: takes {len(positional)} positional arguments, got {len(args)}")
    given = dict(zip(positional, args, strict=False))
    for name, value in kwargs.items():
        if name in given or name not in {argument.name for argument in arguments}:
            problem = "given twice" if name in given else f"unknown; the schema is {parsed_schema(op)}"
            raise MisuseError(f"{op}: argument {name} is {problem}")
        given[name] = value
    bound: dict[str, Any] = {}
    for argument in arguments:
        if argument.name not in given and not argument.has_default_value():
            raise MisuseError(f"{op}: argument {argument.name} is missing; the schema is {parsed_schema(op)}")
        bound[argument.name] = given.get(argument.name, argument.default_value)
    return bound
