"""Constraints of the fused ops: one table for the CPU kernels and for replacements in a graph.

torch_npu's meta kernels check little (npu_rms_norm takes a gamma of the wrong length, npu_swiglu an odd size), so
that capture without a device does not verify these rules. The rules are those of Atlas A2 and A3. Rules on values
(r1 and r2 of npu_rotary_mul lie in [-1, 1]) cannot be checked on shapes and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fusionkit.encoding import Result
from fusionkit.errors import MisuseError
from fusionkit.npu.activation_constraints import ACTIVATION_ROWS
from fusionkit.npu.attention_constraints import ATTENTION_ROWS
from fusionkit.npu.constraint_checks import (
    FLOATS,
    Check,
    Row,
    broadcasts_to,
    cited,
    dtype_in,
    leading_shape,
    not_empty,
    number,
    present,
    rank_between,
    same_dtype,
    same_dtype_or_float32,
    same_shape,
    trailing_shape,
)
from fusionkit.npu.grouped_constraints import GROUPED_ROWS
from fusionkit.npu.moe_constraints import MOE_ROWS
from fusionkit.npu.rotary_constraints import ROTARY_ROWS
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
_CAST = "ops-math docs aclnnCast"
_GAMMA = (same_dtype_or_float32("gamma", "input"), trailing_shape("gamma", "input"))

# op -> rows of (source, rule)
_TABLE: dict[str, tuple[Row, ...]] = {
    "npu_rms_norm": (
        *cited(_RMS, dtype_in("input", *FLOATS), rank_between("input", 2, 8)),
        *cited("ops-nn docs aclnnRmsNorm", present("gamma"), *_GAMMA, not_empty("gamma")),
    ),
    "npu_rms_norm_backward": cited(
        "ops-nn docs aclnnRmsNormGrad",
        dtype_in("input", *FLOATS),
        same_shape("dy", "input"),
        same_dtype("dy", "input"),
        *_GAMMA,
        dtype_in("rstd", torch.float32),
        leading_shape("rstd", "input", "gamma"),
    ),
    "npu_add_rms_norm": cited(
        "ops-nn docs aclnnAddRmsNorm",
        dtype_in("x1", *FLOATS),
        rank_between("x1", 1, 8),
        same_shape("x2", "x1"),
        same_dtype("x2", "x1"),
        present("gamma"),
        same_dtype("gamma", "x1"),
        trailing_shape("gamma", "x1"),
        number("epsilon", "must be 0 or more", lambda value: value >= 0),
    ),
    **ROTARY_ROWS,
    **ACTIVATION_ROWS,
    "_npu_dtype_cast": cited(_CAST, rank_between("input", 0, 8)),
    "_npu_dtype_cast_backward": cited(_CAST, rank_between("grad", 0, 8)),
    **ATTENTION_ROWS,
    **GROUPED_ROWS,
    **MOE_ROWS,
    "layer_norm_scale_shift": cited(
        "fusionkit",
        dtype_in("x", *FLOATS),
        rank_between("x", 1, 8),
        dtype_in("scale", *FLOATS),
        broadcasts_to("scale", "x"),
        dtype_in("shift", *FLOATS),
        broadcasts_to("shift", "x"),
    ),
}

CONSTRAINTS: tuple[Constraint, ...] = tuple(
    Constraint(op, rule.argument, rule.text, source, rule.check)
    for op, rows in _TABLE.items()
    for source, rule in rows
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
