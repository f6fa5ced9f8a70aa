"""torch_npu's fused Adam and AdamW in place of torch's: built with the same arguments."""

from __future__ import annotations

import ast

from fusionkit.identify.replacing.place import Place
from fusionkit.identify.replacing.replacement import Change, Unfit

_FUSED = {"Adam": "NpuFusedAdam", "AdamW": "NpuFusedAdamW"}
_KNOWN = ("params", "lr", "betas", "eps", "weight_decay", "amsgrad")
_NOTES = (
    "the fused optimizer joins parameters and gradients into one tensor: build it after the model is on the NPU",
    "state saved by the original is not laid out as its own",
)


def replace_optimizer(place: Place) -> list[Change]:
    """The change for one optimizer. Raises Unfit where it is given what the fused one does not know."""
    node = place.value.node
    if not isinstance(node, ast.Call):
        raise Unfit("the optimizer is not built by a call")
    unknown = [item.arg or "**" for item in node.keywords if item.arg not in _KNOWN]
    if unknown:
        raise Unfit(f"the optimizer is given {' and '.join(unknown)}, which the fused one does not know")
    name = _FUSED[place.value.name.rpartition(".")[2]]
    return [Change({node.func: f"torch_npu.optim.{name}"}, notes=_NOTES)]
