"""Shapes of cos and sin for npu_rotary_mul: the layouts of its documentation, and their limits.

The op has no layout argument: input is BNSD, BSND, SBND or TND (B batch, N heads, S sequence, D head size,
T tokens of all sequences), and the layout follows from which sizes of r1 are 1. Source: op-plugin docs,
torch_npu.npu_rotary_mul, section for jit_compile=False (Atlas A2 and A3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fusionkit.npu.constraint_checks import Arguments, Check, is_tensor, shape_text, sizes

# layout -> (axis of the batch, None where it has none; axis of the heads)
_LAYOUTS: dict[str, tuple[int | None, int]] = {
    "BNSD": (0, 1),
    "BSND": (0, 2),
    "SBND": (1, 2),
    "TND": (None, 1),
}

# rotary_mode -> rank of input -> forms of r1, as the documentation writes them (1 is a size of one)
R1_FORMS: dict[str, dict[str, tuple[str, ...]]] = {
    "half": {
        "BNSD": ("11SD", "B1SD", "BNSD"),
        "BSND": ("1S1D", "BS1D", "BSND"),
        "SBND": ("S11D", "SB1D", "SBND"),
        "TND": ("T1D", "TND"),
    },
    "interleave": {"BNSD": ("11SD",), "BSND": ("1S1D",), "SBND": ("S11D",), "TND": ("T1D",)},
}

_COUNT_LIMIT = 1000  # half: B < 1000 and N < 1000; interleave: B * N < 1000
_GRADIENT_LIMIT = 1024  # half, with a gradient of r1 or r2: B * N <= 1024


def _fits(shape: tuple[int | None, ...], r1: tuple[int | None, ...], form: str) -> bool:
    if len(shape) != len(r1) or len(r1) != len(form):
        return False
    wanted = [1 if letter == "1" else size for letter, size in zip(form, shape, strict=True)]
    return all(a == b or a is None or b is None for a, b in zip(r1, wanted, strict=True))


def _layouts(arguments: Arguments) -> Iterator[str]:
    """The layouts under which r1 has a permitted form."""
    shape, r1 = sizes(arguments["input"]), sizes(arguments["r1"])
    for layout, forms in R1_FORMS.get(arguments["rotary_mode"], {}).items():
        if any(_fits(shape, r1, form) for form in forms):
            yield layout


def _applies(arguments: Arguments) -> bool:
    tensors = is_tensor(arguments["input"]) and is_tensor(arguments["r1"])
    return tensors and arguments["rotary_mode"] in R1_FORMS


def permitted_form(arguments: Arguments) -> str | None:
    """r1 has one of the documented forms of the mode."""
    if not _applies(arguments) or any(True for _ in _layouts(arguments)):
        return None
    return f"{shape_text(arguments['r1'])} with {shape_text(arguments['input'])} ({arguments['rotary_mode']})"


def _counts(arguments: Arguments, layout: str) -> tuple[int, int]:
    shape = sizes(arguments["input"])
    batch, heads = _LAYOUTS[layout]
    return (1 if batch is None else shape[batch] or 1), shape[heads] or 1


def _limited(mode: str, allowed: Any) -> Check:
    """B and N satisfy allowed under at least one fitting layout (only for rotary_mode == mode)."""

    def check(arguments: Arguments) -> str | None:
        if not _applies(arguments) or arguments["rotary_mode"] != mode:
            return None
        counts = [_counts(arguments, layout) for layout in _layouts(arguments)]
        if not counts or any(allowed(batch, heads) for batch, heads in counts):
            return None
        return f"B={counts[0][0]}, N={counts[0][1]}"

    return check


half_counts = _limited("half", lambda batch, heads: batch < _COUNT_LIMIT and heads < _COUNT_LIMIT)
interleave_counts = _limited("interleave", lambda batch, heads: batch * heads < _COUNT_LIMIT)
_gradient_counts = _limited("half", lambda batch, heads: batch * heads <= _GRADIENT_LIMIT)


def gradient_counts(arguments: Arguments) -> str | None:
    """B * N is at most 1024 if r1 or r2 requires a gradient (half mode)."""
    wanted = any(getattr(arguments[name], "requires_grad", False) for name in ("r1", "r2"))
    return _gradient_counts(arguments) if wanted else None


def full_width(arguments: Arguments) -> str | None:
    """r1 has the rank of input and its last size: cos is given for all D, not for D/2."""
    tensor, r1 = arguments["input"], arguments["r1"]
    if not is_tensor(tensor) or not is_tensor(r1):
        return None
    whole, part = sizes(tensor), sizes(r1)
    if len(whole) == len(part) and (not whole or None in (whole[-1], part[-1]) or whole[-1] == part[-1]):
        return None
    return f"{shape_text(r1)} with {shape_text(tensor)}"


def rotate_matrix(arguments: Arguments) -> str | None:
    """rotate is a [D, D] matrix (absent by default)."""
    tensor, rotate = arguments["input"], arguments["rotate"]
    if not is_tensor(tensor) or not is_tensor(rotate):
        return None
    whole, matrix = sizes(tensor), sizes(rotate)
    square = len(matrix) == 2 and all(None in (size, whole[-1]) or size == whole[-1] for size in matrix)
    return None if square else f"{shape_text(rotate)} with {shape_text(tensor)}"
