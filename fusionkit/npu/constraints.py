"""Constraints of the fused ops: one table for the CPU kernels and for replacements in a graph.

torch_npu's meta kernels check little (npu_rms_norm takes a gamma of the wrong length, npu_swiglu an odd size), so
that capture without a device does not verify these rules. The rules are those of Atlas A2 and A3. Rules on values
(r1 and r2 of npu_rotary_mul lie in [-1, 1]) cannot be checked on shapes and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fusionkit.encoding import Result
from fusionkit.errors import MisuseError
from fusionkit.npu.activation_constraints import ACTIVATION_ROWS
from fusionkit.npu.attention_constraints import ATTENTION_ROWS
from fusionkit.npu.constraint_checks import (
    FLOATS,
    Check,
    Row,
    at_least,
    broadcasts_to,
    dtype_in,
    last_size,
    leading_shape,
    not_empty,
    one_of,
    present,
    rank_between,
    same_dtype,
    same_dtype_or_float32,
    same_shape,
    trailing_shape,
)
from fusionkit.npu.grouped_constraints import GROUPED_ROWS
from fusionkit.npu.moe_constraints import MOE_ROWS
from fusionkit.npu.rotary_layouts import (
    R1_FORMS,
    full_width,
    gradient_counts,
    half_counts,
    interleave_counts,
    permitted_form,
    rotate_matrix,
)
from fusionkit.npu.schemas import KIT_SCHEMAS, SCHEMAS, bind


@dataclass(frozen=True, slots=True)
class Constraint:
    """One documented rule on one argument of one op. `check` returns the offending value, or None."""

    op: str
    argument: str
    rule: str
    source: str
    check: Check


@dataclass(frozen=True, slots=True)
class Violation(Result):
    """A call that violates a rule; `value` is the text of the given value."""

    op: str
    argument: str
    rule: str
    value: str
    source: str

    def __str__(self) -> str:
        return f"{self.op}: {self.argument} {self.rule}, got {self.value} ({self.source})"


_RMS = "op-plugin docs npu_rms_norm"
_ACL_RMS = "ops-nn docs aclnnRmsNorm"
_ACL_RMS_GRAD = "ops-nn docs aclnnRmsNormGrad"
_ACL_ADD_RMS = "ops-nn docs aclnnAddRmsNorm"
_ROTARY = "op-plugin docs npu_rotary_mul"
_CAST = "ops-math docs aclnnCast"
_KIT = "fusionkit"

_FLOAT = "must be float16, bfloat16 or float32"
_TENSOR = "must be a tensor, never None"
_GAMMA_DTYPE = "must have the dtype of input, or float32 with a float16 or bfloat16 input"
_MODE = "must be 'half' or 'interleave'"
_FORM = (
    "must have a form that the op broadcasts (half: 11SD B1SD BNSD, 1S1D BS1D BSND, S11D SB1D SBND, T1D TND;"
    " interleave: 11SD, 1S1D, S11D, T1D)"
)

# op -> rows of (argument, rule, source, check)
_TABLE: dict[str, tuple[Row, ...]] = {
    "npu_rms_norm": (
        ("input", _FLOAT, _RMS, dtype_in("input", FLOATS)),
        ("input", "must have 2 to 8 dimensions", _RMS, rank_between("input", 2, 8)),
        ("gamma", _TENSOR, _ACL_RMS, present("gamma")),
        ("gamma", _GAMMA_DTYPE, _ACL_RMS, same_dtype_or_float32("gamma", "input")),
        (
            "gamma",
            "must have the shape of input's last dimensions",
            _ACL_RMS,
            trailing_shape("gamma", "input"),
        ),
        ("gamma", "must not be empty", _ACL_RMS, not_empty("gamma")),
    ),
    "npu_rms_norm_backward": (
        ("input", _FLOAT, _ACL_RMS_GRAD, dtype_in("input", FLOATS)),
        ("dy", "must have the shape of input", _ACL_RMS_GRAD, same_shape("dy", "input")),
        ("dy", "must have the dtype of input", _ACL_RMS_GRAD, same_dtype("dy", "input")),
        ("gamma", _GAMMA_DTYPE, _ACL_RMS_GRAD, same_dtype_or_float32("gamma", "input")),
        (
            "gamma",
            "must have the shape of input's last dimensions",
            _ACL_RMS_GRAD,
            trailing_shape("gamma", "input"),
        ),
        ("rstd", "must be float32", _ACL_RMS_GRAD, dtype_in("rstd", FLOATS[-1:])),
        (
            "rstd",
            "must have input's leading dimensions",
            _ACL_RMS_GRAD,
            leading_shape("rstd", "input", "gamma"),
        ),
    ),
    "npu_add_rms_norm": (
        ("x1", _FLOAT, _ACL_ADD_RMS, dtype_in("x1", FLOATS)),
        ("x1", "must have 1 to 8 dimensions", _ACL_ADD_RMS, rank_between("x1", 1, 8)),
        ("x2", "must have the shape of x1", _ACL_ADD_RMS, same_shape("x2", "x1")),
        ("x2", "must have the dtype of x1", _ACL_ADD_RMS, same_dtype("x2", "x1")),
        ("gamma", _TENSOR, _ACL_ADD_RMS, present("gamma")),
        ("gamma", "must have the dtype of x1", _ACL_ADD_RMS, same_dtype("gamma", "x1")),
        ("gamma", "must have the shape of x1's last dimensions", _ACL_ADD_RMS, trailing_shape("gamma", "x1")),
        ("epsilon", "must be 0 or more", _ACL_ADD_RMS, at_least("epsilon", 0.0)),
    ),
    "npu_rotary_mul": (
        ("input", _FLOAT, _ROTARY, dtype_in("input", FLOATS)),
        ("input", "must have 3 or 4 dimensions", _ROTARY, rank_between("input", 3, 4)),
        ("input", "must have an even head size D", _ROTARY, last_size("input", lambda size: size % 2 == 0)),
        ("input", "must have a head size D below 896", _ROTARY, last_size("input", lambda size: size < 896)),
        ("input", "must have B < 1000 and N < 1000 (half)", _ROTARY, half_counts),
        ("input", "must have B*N < 1000 (interleave)", _ROTARY, interleave_counts),
        ("r1", _FLOAT, _ROTARY, dtype_in("r1", FLOATS)),
        ("r1", "must have the rank and the full head size D of input", _ROTARY, full_width),
        ("r1", _FORM, _ROTARY, permitted_form),
        ("r1", "must leave B*N <= 1024 where r1 or r2 needs a gradient (half)", _ROTARY, gradient_counts),
        ("r2", _FLOAT, _ROTARY, dtype_in("r2", FLOATS)),
        ("r2", "must have the shape of r1", _ROTARY, same_shape("r2", "r1")),
        ("rotary_mode", _MODE, _ROTARY, one_of("rotary_mode", tuple(R1_FORMS))),
        ("rotate", _FLOAT, _ROTARY, dtype_in("rotate", FLOATS)),
        ("rotate", "must be a [D, D] matrix", _ROTARY, rotate_matrix),
    ),
    "npu_rotary_mul_backward": (
        ("grad", "must have the shape of input", _ROTARY, same_shape("grad", "input")),
        ("r1", _FORM, _ROTARY, permitted_form),
        ("r2", "must have the shape of r1", _ROTARY, same_shape("r2", "r1")),
        ("rotary_mode", _MODE, _ROTARY, one_of("rotary_mode", tuple(R1_FORMS))),
    ),
    **ACTIVATION_ROWS,
    "_npu_dtype_cast": (("input", "must have at most 8 dimensions", _CAST, rank_between("input", 0, 8)),),
    "_npu_dtype_cast_backward": (
        ("grad", "must have at most 8 dimensions", _CAST, rank_between("grad", 0, 8)),
    ),
    **ATTENTION_ROWS,
    **GROUPED_ROWS,
    **MOE_ROWS,
    "layer_norm_scale_shift": (
        ("x", _FLOAT, _KIT, dtype_in("x", FLOATS)),
        ("x", "must have 1 to 8 dimensions", _KIT, rank_between("x", 1, 8)),
        ("scale", _FLOAT, _KIT, dtype_in("scale", FLOATS)),
        ("scale", "must broadcast against x without enlarging it", _KIT, broadcasts_to("scale", "x")),
        ("shift", _FLOAT, _KIT, dtype_in("shift", FLOATS)),
        ("shift", "must broadcast against x without enlarging it", _KIT, broadcasts_to("shift", "x")),
    ),
}

CONSTRAINTS: tuple[Constraint, ...] = tuple(
    Constraint(op, *row) for op, rows in _TABLE.items() for row in rows
)


def violations(op: str, /, *args: Any, **kwargs: Any) -> list[Violation]:
    """The rules that a call `op(*args, **kwargs)` violates, in the order of the table.

    op is a name without namespace (`npu_rms_norm`, or an op of the kit). Arguments bind by the op's schema,
    positional or by keyword, and may be real, fake or meta tensors, anything with `.shape` and `.dtype`, and
    literals. An op outside SCHEMAS and KIT_SCHEMAS has no rules.
    Raises MisuseError if the call does not fit the schema.
    """
    if op not in SCHEMAS and op not in KIT_SCHEMAS:
        return []
    arguments = bind(op, *args, **kwargs)
    results = [(row, row.check(arguments)) for row in CONSTRAINTS if row.op == op]
    return [
        Violation(op, row.argument, row.rule, value, row.source)
        for row, value in results
        if value is not None
    ]


def require(op: str, /, *args: Any, **kwargs: Any) -> None:
    """Raise MisuseError with the first rule that the call violates (see `violations`)."""
    broken = violations(op, *args, **kwargs)
    if broken:
        raise MisuseError(str(broken[0]))
