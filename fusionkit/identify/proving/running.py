"""Run both sides of one planned call in one precision, and the original in float64 beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from fusionkit.errors import USER_CODE_ERRORS
from fusionkit.identify.ops import fused_op
from fusionkit.identify.proving.building import Built
from fusionkit.identify.proving.calling import (
    WRITTEN,
    converted,
    lifted,
    one_line,
    outcome,
    same_outcome,
    with_gradients,
)
from fusionkit.identify.proving.planning import Planned
from fusionkit.identify.proving.traffic import BOTH_WAYS, FORWARD, Ledger, Traffic, difference
from fusionkit.identify.proving.witness import WITNESSES, Branches, Witness
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

    `broken`: why the replaced side did not run; `impossible`: why the original did not in this precision; `unseen`:
    why equal numbers would say nothing of the fused op.
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
    unseen: str = ""
    remarks: tuple[str, ...] = ()
    traffic: tuple[Traffic, ...] = ()


def run_sides(
    planned: Planned, replaced: Built, precision: Precision, branches: Branches, tell: Tell
) -> Sides:
    """Both sides forward, then backward if the op has one. `branches` counts what the replaced module's own run."""
    op = planned.setting.site.op
    side = _Call(converted(planned.arguments, precision.dtype), precision, planned.unread)
    watched = [Witness(op, branches) for _ in range(2)]
    tell("the original code runs")
    try:
        original = planned.original.copied(lambda module: module.to(precision.dtype))
        output = side.forward(original, watched[0])
    except USER_CODE_ERRORS as error:
        return Sides(impossible=f"the original raises {one_line(error)}")
    tell("the replaced code runs")
    try:
        twin = replaced.copied(lambda module: module.to(precision.dtype))
        other = side.forward(twin, watched[1])
    except USER_CODE_ERRORS as error:
        return Sides(broken=f"the replaced code raises {one_line(error)}, the original does not")
    unseen = _unseen(*watched) or _unread(side, twin, other, Witness(op, branches, spoil=True))
    absent = _not_returned(op, output, other)
    dropped = (*absent, *(n for n in output if n.startswith(WRITTEN) and n not in other))
    remarks = [f"{name} is not returned by the fused branch" for name in absent]
    remarks += [f"{name} by the original alone" for name in dropped[len(absent) :]]
    forward = _without((output, other), dropped)
    told = Sides(*forward, None, (output, other), absent, fused_calls=watched[1].seen, unseen=unseen)
    told = replace(told, traffic=(_traffic(FORWARD, precision, *watched),))
    if fused_op(op).backward and not planned.case.row_scales and _alike(*forward):
        told = _backward(planned, side, (original, twin), told, branches, tell)
    if told.broken or told.impossible:
        return told
    reference, remark = _reference(planned, side.arguments, frozenset(forward[0]) if told.training else None)
    return replace(
        told, reference=reference, remarks=(*remarks, *told.remarks, *([remark] if remark else []))
    )


def _backward(
    planned: Planned, side: _Call, twins: Any, forward: Sides, branches: Branches, tell: Tell
) -> Sides:
    """The same with gradients; forward alone where the replacement does not run when they are asked for."""
    kept = frozenset(forward.expected)
    tell("the original code runs backward")
    try:
        with Ledger() as original:
            expected = side.backward(twins[0], kept, contextlib.nullcontext())
    except USER_CODE_ERRORS as error:
        return Sides(impossible=f"the original raises {one_line(error)} backward")
    tell("the replaced code runs backward")
    watched = Witness(planned.setting.site.op, branches)
    try:
        with Ledger() as replaced:
            actual = side.backward(twins[1], kept, watched)
    except USER_CODE_ERRORS as error:
        return Sides(broken=f"the replaced code raises {one_line(error)} backward, the original does not")
    if forward.fused_calls and not watched.seen:
        return replace(
            forward, remarks=("no gradients compared: the fused op is not called when they are asked for",)
        )
    training = any(name.startswith("gradient") for name in expected)
    odd = set(forward.outputs[0]) - kept
    mine, theirs = _without((expected, actual), odd)
    traffic = (*forward.traffic, _traffic(BOTH_WAYS, side.precision, original, replaced))
    return replace(forward, expected=mine, actual=theirs, training=training, traffic=traffic)


def _traffic(direction: str, precision: Precision, original: Ledger, replaced: Ledger) -> Traffic:
    return Traffic(direction, str(precision), *difference(original.entries, replaced.entries))


def _unseen(original: Witness, replaced: Witness) -> str:
    """Why a run says nothing of the op: it is not called, or called by the original too; "" where it does."""
    what = replaced.op if replaced.op in WITNESSES else "new branch"
    if not replaced.seen:
        return (
            f"the replaced code makes no call of {what} here"
            if what == replaced.op
            else "no new branch runs here"
        )
    return f"the original calls {what} itself here" if original.seen else ""


def _unread(side: _Call, twin: Any, outputs: Values, spoiling: Witness) -> str:
    """Why a run says nothing of the op: other numbers from it leave the outputs as they are."""
    if spoiling.op not in WITNESSES:
        return ""
    try:
        spoiled = side.forward(twin, spoiling)
    except USER_CODE_ERRORS:
        return ""
    return (
        f"what {spoiling.op} gives does not reach the outputs here" if same_outcome(outputs, spoiled) else ""
    )


def _without(sides: tuple[Values, Values], dropped: Collection[str]) -> tuple[Values, Values]:
    one, other = ({n: v for n, v in part.items() if n not in dropped} for part in sides)
    return one, other


@dataclass(frozen=True, slots=True)
class _Call:
    """The same call for either side."""

    arguments: Mapping[str, Any]
    precision: Precision
    unread: tuple[int, int]

    def forward(self, side: tuple[Callable[..., Any], nn.Module | None], watch: Witness) -> Values:
        """Outputs by name."""
        with torch.no_grad(), self.precision.context(), watch:
            return outcome(side[0], self.arguments)

    def backward(
        self,
        side: tuple[Callable[..., Any], nn.Module | None],
        kept: frozenset[str],
        watch: contextlib.AbstractContextManager[Any],
    ) -> Values:
        """Outputs and gradients by name; the call alone is watched."""
        around = self._watched(watch)
        outputs, gradients = with_gradients(*side, self.arguments, kept, around, self.unread)
        return outputs | gradients

    @contextlib.contextmanager
    def _watched(self, watch: contextlib.AbstractContextManager[Any]) -> Iterator[None]:
        with self.precision.context(), watch:
            yield


def _reference(
    planned: Planned, arguments: Mapping[str, Any], kept: frozenset[str] | None
) -> tuple[Values | None, str]:
    """The original in float64, from the same rounded weights and inputs; None, with the reason, where it cannot."""
    dtype = next((v.dtype for v in arguments.values() if _floating(v)), torch.float32)

    # copied before anything is lifted: torch copies some tensors by their storage, whose dtype is then another
    side = planned.original.copied(lambda module: module.to(dtype).double())

    def whole(**given: Any) -> Any:
        if kept is None:
            with torch.no_grad():
                return outcome(side[0], given)
        outputs, gradients = with_gradients(*side, given, kept, contextlib.nullcontext(), planned.unread)
        return outputs | gradients

    try:
        return run_float64(whole, kwargs=lifted(arguments)), ""
    except USER_CODE_ERRORS as error:
        return None, f"no float64 reference ({one_line(error)})"


def _alike(output: Values, other: Values) -> bool:
    """Whether structure, shapes and dtypes agree, so that gradients can be compared at all."""
    kinds = [
        {name: (getattr(v, "shape", None), getattr(v, "dtype", None)) for name, v in side.items()}
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
