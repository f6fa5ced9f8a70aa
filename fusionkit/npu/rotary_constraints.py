"""Constraints of npu_rotary_mul on Atlas A2 and A3, and the shapes of cos and sin.

The op has no layout argument: input is BNSD, BSND, SBND or TND (B batch, N heads, S sequence, D head size,
T tokens of all sequences), and the layout follows from which sizes of r1 are 1. Source: op-plugin docs,
torch_npu.npu_rotary_mul, section for jit_compile=False.
"""

from __future__ import annotations

from collections.abc import Callable

from fusionkit.npu.constraint_checks import (
    FLOATS,
    Arguments,
    Row,
    Rule,
    cited,
    dtype_in,
    is_tensor,
    last_size,
    one_of,
    rank_between,
    rule,
    same,
    same_shape,
    shape_text,
    shapes,
    sizes,
)

# layout -> (axis of the batch, None where it has none; axis of the heads)
_LAYOUTS: dict[str, tuple[int | None, int]] = {
    "BNSD": (0, 1),
    "BSND": (0, 2),
    "SBND": (1, 2),
    "TND": (None, 1),
}

# rotary_mode -> layout -> forms of r1, as the documentation writes them (1 is a size of one)
_R1_FORMS: dict[str, dict[str, tuple[str, ...]]] = {
    "half": {
        "BNSD": ("11SD", "B1SD", "BNSD"),
        "BSND": ("1S1D", "BS1D", "BSND"),
        "SBND": ("S11D", "SB1D", "SBND"),
        "TND": ("T1D", "TND"),
    },
    "interleave": {"BNSD": ("11SD",), "BSND": ("1S1D",), "SBND": ("S11D",), "TND": ("T1D",)},
}


def _layouts(arguments: Arguments) -> list[str] | None:
    """The layouts under which r1 has a permitted form; None without tensors or with an unknown mode."""
    tensor, r1, mode = arguments["input"], arguments["r1"], arguments["rotary_mode"]
    if not is_tensor(tensor) or not is_tensor(r1) or mode not in _R1_FORMS:
        return None
    shape = sizes(tensor)

    def fits(form: str) -> bool:
        wanted = [1 if letter == "1" else size for letter, size in zip(form, shape, strict=False)]
        return len(shape) == len(form) and same(sizes(r1), wanted)

    return [layout for layout, forms in _R1_FORMS[mode].items() if any(map(fits, forms))]


@rule(
    "r1",
    "must have a form that the op broadcasts (half: 11SD B1SD BNSD, 1S1D BS1D BSND, S11D SB1D SBND, T1D TND;"
    " interleave: 11SD, 1S1D, S11D, T1D)",
)
def _permitted_form(arguments: Arguments) -> str | None:
    if _layouts(arguments) != []:
        return None
    return f"{shape_text(arguments['r1'])} with {shape_text(arguments['input'])} ({arguments['rotary_mode']})"


def _limited(
    argument: str, text: str, mode: str, allowed: Callable[[int, int], bool], *, training: bool = False
) -> Rule:
    """B and N satisfy allowed under at least one fitting layout, with this rotary_mode.

    With `training` only where r1 or r2 requires a gradient.
    """

    @rule(argument, text)
    def check(arguments: Arguments) -> str | None:
        layouts = _layouts(arguments)
        wants_gradient = any(getattr(arguments[name], "requires_grad", False) for name in ("r1", "r2"))
        if not layouts or arguments["rotary_mode"] != mode or (training and not wants_gradient):
            return None
        shape, axes = sizes(arguments["input"]), [_LAYOUTS[layout] for layout in layouts]
        counts = [(1 if b is None else shape[b] or 1, shape[n] or 1) for b, n in axes]
        if any(allowed(batch, heads) for batch, heads in counts):
            return None
        return f"B={counts[0][0]}, N={counts[0][1]}"

    return check


_SAME_R2 = same_shape("r2", "r1")
_MODE = one_of("rotary_mode", *_R1_FORMS)

ROTARY_ROWS: dict[str, tuple[Row, ...]] = {
    "npu_rotary_mul": cited(
        "op-plugin docs npu_rotary_mul",
        dtype_in("input", *FLOATS),
        rank_between("input", 3, 4),
        last_size("input", "must have an even head size D", lambda size: size % 2 == 0),
        last_size("input", "must have a head size D below 896", lambda size: size < 896),
        _limited("input", "must have B < 1000 and N < 1000 (half)", "half", lambda b, n: max(b, n) < 1000),
        _limited("input", "must have B*N < 1000 (interleave)", "interleave", lambda b, n: b * n < 1000),
        dtype_in("r1", *FLOATS),
        shapes(
            "must have the rank and the full head size D of input",
            lambda r1, whole: len(r1) == len(whole) and same(r1[-1:], whole[-1:]),
            "r1",
            "input",
        ),
        _permitted_form,
        _limited(
            "r1",
            "must leave B*N <= 1024 where r1 or r2 needs a gradient (half)",
            "half",
            lambda b, n: b * n <= 1024,
            training=True,
        ),
        dtype_in("r2", *FLOATS),
        _SAME_R2,
        _MODE,
        dtype_in("rotate", *FLOATS),
        shapes("must be a [D, D] matrix", lambda matrix, x: same(matrix, x[-1:] * 2), "rotate", "input"),
    ),
    "npu_rotary_mul_backward": cited(
        "op-plugin docs npu_rotary_mul", same_shape("grad", "input"), _permitted_form, _SAME_R2, _MODE
    ),
}
