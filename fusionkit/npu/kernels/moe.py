"""Permuting tokens to their experts and back. Formulas: ops-transformer docs aclnnMoeTokenPermute and its like.

T tokens of hidden size H, K experts for each (topK). Entry t * K + j of sorted_indices is the row of the
permuted tokens that holds token t for its j-th expert: the inverse of a stable sort of the expert numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from fusionkit.npu.kernels.op_kernel import Autograd, OpKernel, Rewritten

Tensor = torch.Tensor


def _out_rows(entries: Any, num_out_tokens: int | None) -> Any:
    """Number of kept rows of `entries`: all for None and 0, the first n for n, all but the last n for -n."""
    if not num_out_tokens:
        return entries
    return min(num_out_tokens, entries) if num_out_tokens > 0 else entries + num_out_tokens


def _top_k(indices: Tensor) -> int:
    return 1 if indices.dim() == 1 else indices.shape[1]


def _picked(rows: Tensor, sorted_indices: Tensor) -> Tensor:
    """rows[sorted_indices] in float32; zeros for a row that was cut off."""
    missing = sorted_indices.numel() - rows.shape[0]
    whole = functional.pad(rows.float(), (0, 0, 0, max(0, missing)))
    return whole[sorted_indices.long()]


def permute(tokens: Tensor, indices: Tensor, num_out_tokens: int | None, **_: Any) -> tuple[Tensor, Tensor]:
    """(permuted tokens [rows, H] in the order of the experts, sorted_indices [T * K] int32).

    tokens [T, H], indices [T, K] or [T]. rows is T * K, cut to num_out_tokens; sorted_indices is never cut.
    """
    order = indices.flatten().argsort(stable=True)
    kept = order[: _out_rows(order.numel(), num_out_tokens)]
    return tokens[kept // _top_k(indices)].contiguous(), order.argsort().int()


def _fake_permute(
    tokens: Tensor, indices: Tensor, num_out_tokens: int | None, **_: Any
) -> tuple[Tensor, Tensor]:
    entries = indices.numel()
    rows = _out_rows(entries, num_out_tokens)
    return tokens.new_empty((rows, tokens.shape[1])), indices.new_empty((entries,), dtype=torch.int32)


def permute_grad(
    grad_permuted_tokens: Tensor,
    sorted_indices: Tensor,
    tokens_size_0: int,
    tokens_dtype: torch.dtype,
    num_topK: int,  # noqa: N803 - the schema's name
    **_: Any,
) -> Tensor:
    """Gradient of the tokens [tokens_size_0, H]: the sum over the rows that a token was copied to."""
    copies = _picked(grad_permuted_tokens, sorted_indices)
    return copies.reshape(tokens_size_0, num_topK, -1).sum(1).to(tokens_dtype)


def _fake_permute_grad(
    grad_permuted_tokens: Tensor, tokens_size_0: int, tokens_dtype: torch.dtype, **_: Any
) -> Tensor:
    shape = (tokens_size_0, grad_permuted_tokens.shape[1])
    return grad_permuted_tokens.new_empty(shape, dtype=tokens_dtype)


def unpermute(permuted_tokens: Tensor, sorted_indices: Tensor, probs: Tensor | None, **_: Any) -> Tensor:
    """[T, H]: for each token the sum of its rows, weighted by probs [T, K]; without probs K is 1.

    float32 inside, one rounding. A row that was cut off, and a row with probability 0, adds nothing.
    """
    rows = _picked(permuted_tokens, sorted_indices)
    if probs is None:
        return rows.to(permuted_tokens.dtype)
    weights = probs.float().unsqueeze(-1)
    weighted = rows.reshape(*probs.shape, -1) * weights
    return weighted.masked_fill(weights == 0, 0.0).sum(1).to(permuted_tokens.dtype)


def _fake_unpermute(
    permuted_tokens: Tensor, sorted_indices: Tensor, probs: Tensor | None, **_: Any
) -> Tensor:
    top_k = 1 if probs is None else probs.shape[1]
    return permuted_tokens.new_empty((sorted_indices.shape[0] // top_k, permuted_tokens.shape[-1]))


def unpermute_and_keep(**arguments: Any) -> tuple[Tensor, Tensor]:
    """(unpermuted tokens, a copy of permuted_tokens), which is what torch_npu differentiates."""
    kept = arguments["permuted_tokens"].clone(memory_format=torch.contiguous_format)
    return unpermute(**arguments), kept


def _fake_unpermute_and_keep(**arguments: Any) -> tuple[Tensor, Tensor]:
    permuted_tokens = arguments["permuted_tokens"]
    return _fake_unpermute(**arguments), permuted_tokens.new_empty(permuted_tokens.shape)


def unpermute_grad(
    grad_unpermuted_tokens: Tensor,
    sorted_indices: Tensor,
    permuted_tokens_size_0: int,
    permuted_tokens_dtype: torch.dtype,
    probs: Tensor | None,
    permuted_tokens: Tensor | None,
    **_: Any,
) -> tuple[Tensor, Tensor | None]:
    """(gradient of permuted_tokens [permuted_tokens_size_0, H], gradient of probs or None)."""
    upstream = grad_unpermuted_tokens.float().unsqueeze(1)
    weights = upstream.new_ones(()) if probs is None else probs.float().unsqueeze(-1)
    copies = (upstream * weights).reshape(sorted_indices.numel(), -1)
    rows = torch.zeros_like(copies)
    rows[sorted_indices.long()] = copies
    dtokens = rows[:permuted_tokens_size_0].to(permuted_tokens_dtype).contiguous()
    if probs is None or permuted_tokens is None:
        return dtokens, None
    products = _picked(permuted_tokens, sorted_indices).reshape(*probs.shape, -1) * upstream
    return dtokens, products.sum(-1).to(probs.dtype)


def _fake_unpermute_grad(
    grad_unpermuted_tokens: Tensor,
    permuted_tokens_size_0: int,
    permuted_tokens_dtype: torch.dtype,
    probs: Tensor | None,
    **_: Any,
) -> tuple[Tensor, Tensor | None]:
    shape = (permuted_tokens_size_0, grad_unpermuted_tokens.shape[1])
    dprobs = None if probs is None else probs.new_empty(probs.shape)
    return grad_unpermuted_tokens.new_empty(shape, dtype=permuted_tokens_dtype), dprobs


def _save_permute(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    tokens, indices, _, padded_mode = inputs
    ctx.options = (tokens.shape[0], tokens.dtype, _top_k(indices), padded_mode)
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])


def _permute_backward(
    ctx: Any, grad: Tensor, _indices_grad: Tensor | None
) -> tuple[Tensor, None, None, None]:
    dtokens = torch.ops.npu.npu_moe_token_permute_grad_v2(grad, *ctx.saved_tensors, *ctx.options)
    return dtokens, None, None, None


def _unpermute_in_two_steps(**arguments: Any) -> Any:
    return torch.ops.npu._npu_moe_token_unpermute(**arguments)[0]


def _save_unpermute(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    tokens, sorted_indices, probs, *ctx.mode = inputs
    ctx.options = (tokens.shape[0], tokens.dtype)
    ctx.save_for_backward(sorted_indices, probs, output[1])
    ctx.mark_non_differentiable(output[1])


def _unpermute_backward(
    ctx: Any, grad: Tensor, _kept_grad: Tensor | None
) -> tuple[Tensor, None, Tensor | None, None, None]:
    sorted_indices, probs, permuted_tokens = ctx.saved_tensors
    dtokens, dprobs = torch.ops.npu.npu_moe_token_unpermute_grad_v2(
        grad, sorted_indices, *ctx.options, probs, *ctx.mode, permuted_tokens
    )
    return dtokens, None, dprobs, None, None


KERNELS = (
    OpKernel("npu_moe_token_permute", permute, _fake_permute, Autograd(_save_permute, _permute_backward)),
    OpKernel("npu_moe_token_permute_grad_v2", permute_grad, _fake_permute_grad),
    OpKernel("npu_moe_token_unpermute", unpermute, _fake_unpermute, Rewritten(_unpermute_in_two_steps)),
    OpKernel(
        "_npu_moe_token_unpermute",
        unpermute_and_keep,
        _fake_unpermute_and_keep,
        Autograd(_save_unpermute, _unpermute_backward),
    ),
    OpKernel("npu_moe_token_unpermute_grad_v2", unpermute_grad, _fake_unpermute_grad),
)
