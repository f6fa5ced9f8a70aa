"""Constraints of the MoE permutations on Atlas A2 and A3."""

from __future__ import annotations

import math

import torch

from fusionkit.npu.constraint_checks import (
    FLOATS,
    Arguments,
    Row,
    Rule,
    Sizes,
    absent,
    cited,
    dtype_in,
    is_tensor,
    one_of,
    rank_between,
    rule,
    same,
    same_dtype,
    shape_text,
    shapes,
    sizes,
)

_UNPADDED = one_of("padded_mode", False)
_SORTED = (dtype_in("sorted_indices", torch.int32), rank_between("sorted_indices", 1, 1))


def _float_rows(name: str) -> tuple[Rule, Rule]:
    return dtype_in(name, *FLOATS), rank_between(name, 2, 2)


def _top_k(name: str) -> Rule:
    text = "must have at most 512 experts a token"
    return shapes(text, lambda shape: len(shape) < 2 or (shape[1] or 1) <= 512, name)


def _row_per_token(indices: Sizes, tokens: Sizes) -> bool:
    return not indices or not tokens or same(indices[:1], tokens[:1])


def _value_per_index(probs: Sizes, indices: Sizes) -> bool:
    known = [size for size in (*probs, *indices) if size is not None]
    return len(probs) != 2 or len(indices) != 1 or len(known) < 3 or known[0] * known[1] == known[2]


_PROBS_FIT = shapes("must have as many values as sorted_indices", _value_per_index, "probs", "sorted_indices")


@rule("num_out_tokens", "must not cut off more rows than there are")
def _kept_rows(arguments: Arguments) -> str | None:
    count, indices = arguments["num_out_tokens"], arguments["indices"]
    if not isinstance(count, int) or count >= 0 or not is_tensor(indices):
        return None
    known = [size for size in sizes(indices) if size is not None]
    if len(known) < len(indices.shape) or count + math.prod(known) >= 0:
        return None
    return f"{count} with {shape_text(indices)}"


@rule("sorted_indices", "must have tokens_size_0 * num_topK values")
def _gradient_entries(arguments: Arguments) -> str | None:
    indices, tokens, top_k = (arguments[name] for name in ("sorted_indices", "tokens_size_0", "num_topK"))
    if not is_tensor(indices) or not isinstance(tokens, int) or not isinstance(top_k, int):
        return None
    if len(indices.shape) != 1 or same(sizes(indices), (tokens * top_k,)):
        return None
    return f"{sizes(indices)[0]} for {tokens} tokens of {top_k} experts"


_UNPERMUTE_ROWS = cited(
    "op-plugin docs npu_moe_token_unpermute",
    *_float_rows("permuted_tokens"),
    *_SORTED,
    *_float_rows("probs"),
    _PROBS_FIT,
    _top_k("probs"),
    _UNPADDED,
    absent("restore_shape"),
)

MOE_ROWS: dict[str, tuple[Row, ...]] = {
    "npu_moe_token_permute": cited(
        "op-plugin docs npu_moe_token_permute",
        *_float_rows("tokens"),
        dtype_in("indices", torch.int32, torch.int64),
        rank_between("indices", 1, 2),
        shapes("must have a row for each token", _row_per_token, "indices", "tokens"),
        _top_k("indices"),
        _kept_rows,
        _UNPADDED,
    ),
    "npu_moe_token_permute_grad_v2": cited(
        "ops-transformer docs aclnnMoeTokenPermuteGrad",
        *_float_rows("grad_permuted_tokens"),
        *_SORTED,
        _gradient_entries,
        _UNPADDED,
    ),
    "npu_moe_token_unpermute": _UNPERMUTE_ROWS,
    "_npu_moe_token_unpermute": _UNPERMUTE_ROWS,
    "npu_moe_token_unpermute_grad_v2": cited(
        "ops-transformer docs aclnnMoeTokenUnpermuteGrad",
        *_float_rows("grad_unpermuted_tokens"),
        *_SORTED,
        rank_between("probs", 2, 2),
        _PROBS_FIT,
        same_dtype("permuted_tokens", "grad_unpermuted_tokens"),
        _UNPADDED,
    ),
}
