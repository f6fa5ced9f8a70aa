"""How torch's functions and methods are called, and the one word that each goes by here."""

from __future__ import annotations

# Spelled otherwise, but the same op.
ALIASES = {
    "multiply": "mul", "divide": "div", "true_divide": "div", "subtract": "sub", "negative": "neg", "swish": "silu",
    "clip": "clamp", "hardtanh": "clamp", "clamp_max": "clamp", "clamp_min": "clamp", "mm": "matmul", "bmm": "matmul",
    "concat": "cat", "concatenate": "cat",
}  # fmt: skip

# Tensor methods and functions of torch that the rules tell apart; every other call stays a call by its name.
_SPELLED = (
    "add sub mul div neg pow square mean sum rsqrt sqrt reciprocal norm rms_norm vector_norm exp tanh erf sigmoid",
    "silu gelu relu softmax log_softmax matmul einsum baddbmm addmm addcmul linear scaled_dot_product_attention",
    "dropout to float half bfloat16 double type type_as view reshape contiguous unsqueeze squeeze expand expand_as",
    "flatten unflatten transpose permute movedim clone detach view_as reshape_as swapaxes broadcast_to t chunk split",
    "unbind tensor_split split_with_sizes narrow index_select gather select cat stack repeat repeat_interleave clamp",
    "where masked_fill masked_scatter masked_select cos sin nonzero item tolist argwhere view_as_complex view_as_real",
    "polar complex outer one_hot topk sort argsort index_add index_put scatter_add scatter lerp logical_not",
    "logical_and logical_or eq ne gt lt ge le bool any all tril triu max min minimum maximum rotary _grouped_mm",
    "grouped_mm zeros_like ones_like full_like new_zeros zeros ones full empty tensor arange finfo layer_norm roll",
    "flip real imag softplus rearrange clamp_max clamp_min",
)
TENSOR_OPS = frozenset(word for line in _SPELLED for word in line.split()) | frozenset(ALIASES)

# Names that are modules too often to be read as tensor methods when something other than a number is handed over.
MODULE_LIKE = frozenset({"norm", "linear", "dropout", "rotary"})


def canonical(name: str) -> str | None:
    """The op of a torch function or tensor method, in-place spelling included; None for any other name."""
    bare = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    if bare not in TENSOR_OPS:
        return None
    return ALIASES.get(bare, bare)
