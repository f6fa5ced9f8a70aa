"""Constraints of the MoE permutations on Atlas A2 and A3."""

from __future__ import annotations

from typing import Any

import torch

from fusionkit.npu.constraint_checks import (
    FLOATS,
    Arguments,
    Row,
    absent,
    dtype_in,
    is_tensor,
    one_of,
    rank_between,
    same_dtype,
    shape_text,
    sizes,
)

_PERMUTE = "op-plugin docs npu_moe_token_permute"
_ACL_PERMUTE_GRAD = "ops-transformer docs aclnnMoeTokenPermuteGrad"
_UNPERMUTE = "op-plugin docs npu_moe_token_unpermute"
_ACL_UNPERMUTE_GRAD = "ops-transformer docs aclnnMoeTokenUnpermuteGrad"

_FLOAT = "must be float16, bfloat16 or float32"
_TWO = "must have 2 dimensions"
_MOST_TOP_K = 512


def _entries_per_token(tokens: str, indices: str) -> Any:
    """indices has one row per row of tokens."""

    def check(arguments: Arguments) -> str | None:
        rows, wanted = arguments[indices], arguments[tokens]
        if not is_tensor(rows) or not is_tensor(wanted) or not len(rows.shape) or not len(wanted.shape):
            return None
        have, want = sizes(rows)[0], sizes(wanted)[0]
        return (
            None if None in (have, want) or have == want else f"{shape_text(rows)} with {shape_text(wanted)}"
        )

    return check


def _top_k(name: str) -> Any:
    """The tensor's second size is at most 512."""

    def check(arguments: Arguments) -> str | None:
        tensor = arguments[name]
        if not is_tensor(tensor) or len(tensor.shape) < 2:
            return None
        return None if (sizes(tensor)[1] or 1) <= _MOST_TOP_K else shape_text(tensor)

    return check


def _kept_rows(arguments: Arguments) -> str | None:
    """A negative num_out_tokens leaves at least one row."""
    count, indices = arguments["num_out_tokens"], arguments["indices"]
    known = [size for size in sizes(indices) if size is not None] if is_tensor(indices) else []
    if not isinstance(count, int) or count >= 0 or len(known) < len(indices.shape):
        return None
    entries = 1
    for size in known:
        entries *= size
    return None if count + entries >= 0 else f"{count} with {shape_text(indices)}"


def _probs_fit(arguments: Arguments) -> str | None:
    """probs [T, K] has as many values as sorted_indices."""
    probs, indices = arguments["probs"], arguments["sorted_indices"]
    if not is_tensor(probs) or len(probs.shape) != 2 or len(indices.shape) != 1:
        return None
    known = (*sizes(probs), *sizes(indices))
    if None in known or known[0] * known[1] == known[2]:  # type: ignore[operator]
        return None
    return f"{shape_text(probs)} with {shape_text(indices)}"


def _gradient_entries(arguments: Arguments) -> str | None:
    """sorted_indices has tokens_size_0 * num_topK values."""
    indices, count = arguments["sorted_indices"], (arguments["tokens_size_0"], arguments["num_topK"])
    if not is_tensor(indices) or len(indices.shape) != 1 or not all(isinstance(part, int) for part in count):
        return None
    have = sizes(indices)[0]
    return (
        None if have in (None, count[0] * count[1]) else f"{have} for {count[0]} tokens of {count[1]} experts"
    )


_SORTED: tuple[tuple[str, str, Any], ...] = (
    ("sorted_indices", "must be int32", dtype_in("sorted_indices", (torch.int32,))),
    ("sorted_indices", "must have 1 dimension", rank_between("sorted_indices", 1, 1)),
)


def _sorted_rows(source: str) -> tuple[Row, ...]:
    return tuple((argument, rule, source, check) for argument, rule, check in _SORTED)


def _mode_row(source: str) -> Row:
    return ("padded_mode", "must be False", source, one_of("padded_mode", (False,)))


_UNPERMUTE_ROWS: tuple[Row, ...] = (
    ("permuted_tokens", _FLOAT, _UNPERMUTE, dtype_in("permuted_tokens", FLOATS)),
    ("permuted_tokens", _TWO, _UNPERMUTE, rank_between("permuted_tokens", 2, 2)),
    *_sorted_rows(_UNPERMUTE),
    ("probs", _FLOAT, _UNPERMUTE, dtype_in("probs", FLOATS)),
    ("probs", _TWO, _UNPERMUTE, rank_between("probs", 2, 2)),
    ("probs", "must have as many values as sorted_indices", _UNPERMUTE, _probs_fit),
    ("probs", "must have at most 512 experts a token", _UNPERMUTE, _top_k("probs")),
    _mode_row(_UNPERMUTE),
    ("restore_shape", "must be None", _UNPERMUTE, absent("restore_shape")),
)

MOE_ROWS: dict[str, tuple[Row, ...]] = {
    "npu_moe_token_permute": (
        ("tokens", _FLOAT, _PERMUTE, dtype_in("tokens", FLOATS)),
        ("tokens", _TWO, _PERMUTE, rank_between("tokens", 2, 2)),
        ("indices", "must be int32 or int64", _PERMUTE, dtype_in("indices", (torch.int32, torch.int64))),
        ("indices", "must have 1 or 2 dimensions", _PERMUTE, rank_between("indices", 1, 2)),
        ("indices", "must have a row for each token", _PERMUTE, _entries_per_token("tokens", "indices")),
        ("indices", "must have at most 512 experts a token", _PERMUTE, _top_k("indices")),
        ("num_out_tokens", "must not cut off more rows than there are", _PERMUTE, _kept_rows),
        _mode_row(_PERMUTE),
    ),
    "npu_moe_token_permute_grad_v2": (
        (
            "grad_permuted_tokens",
            _FLOAT,
            _ACL_PERMUTE_GRAD,
            dtype_in("grad_permuted_tokens", FLOATS),
        ),
        ("grad_permuted_tokens", _TWO, _ACL_PERMUTE_GRAD, rank_between("grad_permuted_tokens", 2, 2)),
        *_sorted_rows(_ACL_PERMUTE_GRAD),
        (
            "sorted_indices",
            "must have tokens_size_0 * num_topK values",
            _ACL_PERMUTE_GRAD,
            _gradient_entries,
        ),
        _mode_row(_ACL_PERMUTE_GRAD),
    ),
    "npu_moe_token_unpermute": _UNPERMUTE_ROWS,
    "_npu_moe_token_unpermute": _UNPERMUTE_ROWS,
    "npu_moe_token_unpermute_grad_v2": (
        (
            "grad_unpermuted_tokens",
            _FLOAT,
            _ACL_UNPERMUTE_GRAD,
            dtype_in("grad_unpermuted_tokens", FLOATS),
        ),
        ("grad_unpermuted_tokens", _TWO, _ACL_UNPERMUTE_GRAD, rank_between("grad_unpermuted_tokens", 2, 2)),
        *_sorted_rows(_ACL_UNPERMUTE_GRAD),
        ("probs", _TWO, _ACL_UNPERMUTE_GRAD, rank_between("probs", 2, 2)),
        ("probs", "must have as many values as sorted_indices", _ACL_UNPERMUTE_GRAD, _probs_fit),
        (
            "permuted_tokens",
            "must have the dtype of grad_unpermuted_tokens",
            _ACL_UNPERMUTE_GRAD,
            same_dtype("permuted_tokens", "grad_unpermuted_tokens"),
        ),
        _mode_row(_ACL_UNPERMUTE_GRAD),
    ),
}
