"""Run both sides of one planned call in one precision, and the original in float64 beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from fusionkit.errors import USER_CODE_ERRORS
from fusionkit.identify.ops import fused_op
from fusionkit.identify.proving.building import Built
from fusionkit.identify.proving.calling import called, converted, leaves, lifted, one_line, with_gradients
from fusionkit.identify.proving.planning import Planned
from fusionkit.numeric.reference import run_float64

Tell = Callable[[str], None]
Values = dict[str, Any]

NOT_RETURNED = ("npu_fusion_attention",)
"""Ops whose fused branch may give None in place of an output after the first: attention weights do not exist there."""


@dataclass(frozen=True, slots=True)
class Precision:
    """dtype of weights and inputs, and whether torch.autocast("cpu", bfloat16) is on."""

    dtype: torch.dtype
    autocast: bool = False

    def __str__(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        return f"{name} under autocast" if self.autocast else name

    def context(self) -> contextlib.AbstractContextManager[Any]:
        """The autocast that a call runs under."""
        return torch.autocast("cpu", torch.bfloat16) if self.autocast else contextlib.nullcontext()


@dataclass(frozen=True, slots=True)
class Sides:
    """What both sides gave: values by name (outputs and gradients), and what there is to say.

    `broken`: why the replaced side did not run; `impossible`: why the original did not in this precision.
    """

    expected: Values = field(default_factory=dict)
    actual: Values = field(default_factory=dict)
    reference: Values | None = None
    outputs: tuple[Values, Values] = field(default_factory=lambda: ({}, {}))
    not_returned: tuple[str, ...] = ()
    training: bool = False
    fused_calls: int = 0
    broken: str = ""
    impossible: str = ""
    remark: str = ""


def run_sides(
    planned: Planned, replaced: Built, precision: Precision, count: Callable[[], int], tell: Tell
) -> Sides:
    """Both sides forward, then backward if the op has one. `count` gives the number of fused calls so far."""
    arguments = converted(planned.arguments, precision.dtype)
    side = _Call(arguments, precision, planned.unread)
    tell("the original code runs")
    try:
        original = planned.original.copied(lambda module: module.to(precision.dtype))
        output = side.forward(original)
    except USER_CODE_ERRORS as error:
        return Sides(impossible=f"the original raises {one_line(error)}")
    tell("the replaced code runs")
    before = count()
    try:
        twin = replaced.copied(lambda module: module.to(precision.dtype))
        other = side.forward(twin)
    except USER_CODE_ERRORS as error:
        return Sides(broken=f"the replaced code raises {one_line(error)}, the original does not")
    calls = count() - before
    dropped = _not_returned(planned.setting.site.op, output, other)
    kept = frozenset(output) - set(dropped)
    both = (output, other)
    if not fused_op(planned.setting.site.op).backward or not _alike(output, other, dropped):
        reference, remark = _reference(planned, arguments, None)
        mine, theirs = ({n: v for n, v in part.items() if n not in dropped} for part in both)
        return Sides(mine, theirs, reference, both, dropped, False, calls, remark=remark)
    return _backward(planned, side, (original, twin), both, kept, dropped, calls, tell)


def _backward(
    planned: Planned, side: _Call, twins: Any, both: tuple[Values, Values], kept: frozenset[str],
    dropped: tuple[str, ...], calls: int, tell: Tell,
) -> Sides:  # fmt: skip
    tell("the original code runs backward")
    try:
        expected = side.backward(twins[0], kept)
    except USER_CODE_ERRORS as error:
        return Sides(impossible=f"the original raises {one_line(error)} backward")
    tell("the replaced code runs backward")
    try:
        actual = side.backward(twins[1], kept)
    except USER_CODE_ERRORS as error:
        return Sides(broken=f"the replaced code raises {one_line(error)} backward, the original does not")
    reference, remark = _reference(planned, side.arguments, kept)
    training = any(name.startswith("gradient") for name in expected)
    expected, actual = ({n: v for n, v in part.items() if n not in dropped} for part in (expected, actual))
    return Sides(expected, actual, reference, both, dropped, training, calls, remark=remark)


@dataclass(frozen=True, slots=True)
class _Call:
    """The same call for either side."""

    arguments: Mapping[str, Any]
    precision: Precision
    unread: tuple[int, int]

    def forward(self, side: tuple[Callable[..., Any], nn.Module | None]) -> Values:
        """Outputs by name."""
        with torch.no_grad(), self.precision.context():
            return leaves(called(side[0], self.arguments))

    def backward(self, side: tuple[Callable[..., Any], nn.Module | None], kept: frozenset[str]) -> Values:
        """Outputs and gradients by name."""
        outputs, gradients = with_gradients(
            *side, self.arguments, kept, self.precision.context(), self.unread
        )
        return outputs | gradients


def _reference(
    planned: Planned, arguments: Mapping[str, Any], kept: frozenset[str] | None
) -> tuple[Values | None, str]:
    """The original in float64, from the same rounded weights and inputs; None, with the reason, where it cannot."""
    dtype = next((v.dtype for v in arguments.values() if _floating(v)), torch.float32)

    def whole(**given: Any) -> Any:
        side = planned.original.copied(lambda module: module.to(dtype).double())
        if kept is None:
            with torch.no_grad():
                return leaves(called(side[0], given))
        outputs, gradients = with_gradients(*side, given, kept, contextlib.nullcontext(), planned.unread)
        return outputs | gradients

    try:
        return run_float64(whole, kwargs=lifted(arguments)), ""
    except USER_CODE_ERRORS as error:
        return None, f"no float64 reference ({one_line(error)})"


def _alike(output: Values, other: Values, dropped: tuple[str, ...]) -> bool:
    """Whether structure, shapes and dtypes agree, so that gradients can be compared at all."""
    kinds = [
        {
            name: (getattr(v, "shape", None), getattr(v, "dtype", None))
            for name, v in side.items()
            if name not in dropped
        }
        for side in (output, other)
    ]
    return kinds[0] == kinds[1]


def _floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _not_returned(op: str, output: Values, other: Values) -> tuple[str, ...]:
    """Outputs after the first that only the original returns, where the op cannot."""
    if op not in NOT_RETURNED:
        return ()
    first = next(iter(output), "")
    absent = [
        n for n, v in output.items() if n != first and v is not None and n in other and other[n] is None
    ]
    return tuple(absent)
