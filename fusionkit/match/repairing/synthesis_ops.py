"""Fused ops for written replacements, and the numeric trial of each against a region."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fusionkit.errors import USER_CODE_ERRORS
from fusionkit.match.repairing.copies import copies_added
from fusionkit.match.repairing.region import Region, Slot
from fusionkit.match.repairing.region_numbers import exact, off_by, plausible, prove
from fusionkit.numeric.replay import SiteReplay

_npu: Any = torch.ops.npu
_kit: Any = torch.ops.fusionkit


@dataclass(frozen=True, slots=True)
class FusedForm:
    """One way to call a fused op; `call` computes it.

    `text`: statements, the last one an expression; {0}, {1}, ... are the tensors, {eps} the number. `below`: how many
    dims less than the first tensor the others must have, since a batch of 1 would broadcast; None: any.
    """

    op: str
    tensors: int
    text: str
    call: Callable[..., Any]
    below: int | None = None


def _both(table: torch.Tensor) -> torch.Tensor:
    return torch.cat((table, table), dim=-1)


_RMS = "torch.ops.npu.npu_rms_norm"
_TURN = "torch.ops.npu.npu_rotary_mul"
_NORM = "torch.ops.fusionkit.layer_norm_scale_shift"
_WIDE = "{1} = torch.cat(({1}, {1}), dim=-1)\n{2} = torch.cat(({2}, {2}), dim=-1)\n"

# Signatures: torch_npu 2.13 npu_native_functions.yaml and op-plugin docs; layer_norm_scale_shift is the kit's own.
# The simplest call of an op comes first.
FORMS: tuple[FusedForm, ...] = (
    FusedForm("npu_rms_norm", 2, f"{_RMS}({{0}}, {{1}}, {{eps}})[0]",
              lambda x, w, eps: _npu.npu_rms_norm(x, w, eps)[0]),
    FusedForm("npu_rms_norm", 2, f"{_RMS}({{0}}, 1.0 + {{1}}.float(), {{eps}})[0]",
              lambda x, w, eps: _npu.npu_rms_norm(x, 1.0 + w.float(), eps)[0]),
    FusedForm("npu_add_rms_norm", 3, "torch.ops.npu.npu_add_rms_norm({0}, {1}, {2}, {eps})[::2]",
              lambda x, y, w, eps: _npu.npu_add_rms_norm(x, y, w, eps)[::2]),
    FusedForm("npu_add_rms_norm", 3, "torch.ops.npu.npu_add_rms_norm({0}, {1}, {2}, {eps})[::-2]",
              lambda x, y, w, eps: _npu.npu_add_rms_norm(x, y, w, eps)[::-2]),
    FusedForm("npu_rotary_mul", 3, f'{_TURN}({{0}}, {{1}}, {{2}}, "half")',
              lambda x, c, s: _npu.npu_rotary_mul(x, c, s, "half"), below=0),
    FusedForm("npu_rotary_mul", 3, f'{_TURN}({{0}}, {{1}}, {{2}}, "interleave")',
              lambda x, c, s: _npu.npu_rotary_mul(x, c, s, "interleave"), below=0),
    FusedForm("npu_rotary_mul", 3, f'{_TURN}({{0}}.float(), {{1}}, {{2}}, "half").to({{0}}.dtype)',
              lambda x, c, s: _npu.npu_rotary_mul(x.float(), c, s, "half").to(x.dtype), below=0),
    FusedForm("npu_rotary_mul", 3, f'{_TURN}({{0}}.float(), {{1}}, {{2}}, "interleave").to({{0}}.dtype)',
              lambda x, c, s: _npu.npu_rotary_mul(x.float(), c, s, "interleave").to(x.dtype), below=0),
    FusedForm("npu_rotary_mul", 3, f'{_WIDE}{_TURN}({{0}}, {{1}}, {{2}}, "half")',
              lambda x, c, s: _npu.npu_rotary_mul(x, _both(c), _both(s), "half"), below=0),
    FusedForm("npu_swiglu", 1, "torch.ops.npu.npu_swiglu({0}, -1)", lambda x: _npu.npu_swiglu(x, -1)),
    FusedForm("npu_swiglu", 2, "torch.ops.npu.npu_swiglu(torch.cat(({0}, {1}), dim=-1), -1)",
              lambda x, y: _npu.npu_swiglu(torch.cat((x, y), dim=-1), -1), below=0),
    FusedForm("npu_gelu", 1, 'torch.ops.npu.npu_gelu({0}, approximate="tanh")',
              lambda x: _npu.npu_gelu(x, approximate="tanh")),
    FusedForm("npu_gelu", 1, 'torch.ops.npu.npu_gelu({0}, approximate="none")',
              lambda x: _npu.npu_gelu(x, approximate="none")),
    FusedForm("npu_fast_gelu", 1, "torch.ops.npu.npu_fast_gelu({0})", lambda x: _npu.npu_fast_gelu(x)),
    FusedForm("layer_norm_scale_shift", 3, f"{_NORM}({{0}}, {{1}}, {{2}}, {{eps}})",
              lambda x, a, b, eps: _kit.layer_norm_scale_shift(x, a, b, eps), below=0),
    FusedForm("layer_norm_scale_shift", 3, f"{_NORM}({{0}}, {{1}}.unsqueeze(1), {{2}}.unsqueeze(1), {{eps}})",
              lambda x, a, b, eps: _kit.layer_norm_scale_shift(x, a.unsqueeze(1), b.unsqueeze(1), eps), below=1),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BoundForm:
    """A call of a fused op on the inputs of a region.

    `order`: input index for each tensor of `form`; `eps`: the place of the number, `value`: its value, both None for
    a form without one.
    """

    form: FusedForm
    order: tuple[int, ...]
    eps: Slot | None
    value: float | None

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """The op's result for the region's inputs."""
        chosen = [tensors[index] for index in self.order]
        return self.form.call(*chosen) if self.value is None else self.form.call(*chosen, self.value)

    def text(self, names: Sequence[str], eps: str | None) -> str:
        """The statements that return the value; `eps`: the argument's name if the number is an argument."""
        tensors = [names[index] for index in self.order]
        text = self.form.text.format(*tensors, eps=eps if eps is not None else repr(self.value))
        *before, last = text.splitlines()
        return "\n".join([*before, f"return {last}"])


@dataclass(frozen=True, slots=True)
class TakenOp:
    """A fused op that computes a region, with its proof."""

    bound: BoundForm
    replay: SiteReplay

    def __str__(self) -> str:
        """One line: the op, and the largest differences over all comparisons."""
        comparisons = [regime.comparison for regime in self.replay.regimes]
        parts = [part for item in comparisons if item is not None for part in (item.outputs or (item,))]
        largest = max((part.max_abs for part in parts if not math.isnan(part.max_abs)), default=0.0)
        relative = max((part.mean_rel for part in parts if not math.isnan(part.mean_rel)), default=0.0)
        return (
            f"{self.bound.form.op}, equal on target cpu: largest difference {largest:.3g},"
            f" mean relative difference {relative:.3g} at most"
        )


def take_op(region: Region, ops: Collection[str] | None = None) -> tuple[TakenOp | None, str]:
    """The fused op that equals the region on target cpu, "" with it; or None and how the nearest one differs.

    Every call of the table (`ops`: of these ops) with every binding of its arguments is compared. Those that agree in
    float32 are proven: the closest in the site's dtypes first, of equally close ones that with the fewest casts and
    copies. Equal: within the kit's tolerance of the region's float64 reference, at the region's own shapes, on every
    input of a counterexample search, in float32 and in the site's dtypes.
    """
    near = [bound for bound in _bindings(region) if ops is None or bound.form.op in ops]
    near = [bound for bound in near if plausible(region, bound)]
    ranked = sorted(
        (bound for bound in near if exact(region, bound)),
        key=lambda bound: (off_by(region, bound), copies_added(region, bound)),
    )
    differs = ""
    for bound in ranked or near[:1]:
        try:
            replay = prove(region, bound, eps=bound.value)
        except USER_CODE_ERRORS:
            continue
        if replay:
            return TakenOp(bound, replay), ""
        differs = differs or f"{bound.form.op} differs: {replay.reason}"
    return None, differs


def _bindings(region: Region) -> Iterator[BoundForm]:
    count = len(region.inputs)
    floats = [slot for slot, value in region.slots() if isinstance(value, float)]
    ranks = [value.dim() for value in region.input_values]
    for form in (form for form in FORMS if form.tensors == count):
        slots: list[Slot | None] = [*floats] if "{eps}" in form.text else [None]
        for order, slot in itertools.product(itertools.permutations(range(count)), slots):
            below = {ranks[order[0]] - ranks[index] for index in order[1:]}
            if form.below is None or below <= {form.below}:
                yield BoundForm(form, order, slot, None if slot is None else float(region.argument(slot)))
