"""The literals at which a computation changes its course: bounds of clamp, thresholds, comparisons, soft caps.

A replacement that lacks such a bound is right for all values on one side of it, so that a proof must have reached
both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.fx.experimental.proxy_tensor import make_fx

from fusionkit.errors import USER_CODE_ERRORS

_COMPARISONS = ("gt", "ge", "lt", "le", "eq", "ne")
_NEVER_NEGATIVE = ("abs", "square", "exp", "sigmoid", "relu", "softmax", "_softmax", "sqrt", "rsqrt")
_KEEPS_SIGN = (
    "mean",
    "sum",
    "amax",
    "amin",
    "_to_copy",
    "view",
    "reshape",
    "expand",
    "unsqueeze",
    "slice",
    "clone",
)


@dataclass(frozen=True, slots=True)
class Bound:
    """`value` on the operand of a node of the traced graph. `kind`: clamp min, clamp max, threshold, comparison, soft cap."""

    kind: str
    value: float
    operand: str

    @property
    def key(self) -> tuple[str, float]:
        """What two bounds have in common that cut alike."""
        return (self.kind, self.value)

    def __str__(self) -> str:
        return f"{self.kind} {self.value:g}"


def trace(function: Callable[..., Any], inputs: Sequence[Any]) -> torch.fx.GraphModule | None:
    """The graph of `function` at the inputs' shapes; None where it cannot be traced."""
    try:
        with torch.no_grad():
            return make_fx(function)(*inputs)
    except USER_CODE_ERRORS:
        return None


def bounds_of(module: torch.fx.GraphModule | None) -> tuple[Bound, ...]:
    """Every bound of the graph, in its order; none without a graph."""
    nodes = () if module is None else module.graph.nodes
    return tuple(bound for node in nodes for bound in _bounds(node))


def alone(first: Sequence[Bound], second: Sequence[Bound]) -> tuple[Bound, ...]:
    """The bounds of `first` that `second` does not have as often."""
    spare = Counter(bound.key for bound in second)
    left = []
    for bound in first:
        if spare[bound.key]:
            spare[bound.key] -= 1
        else:
            left.append(bound)
    return tuple(left)


def sides_reached(
    module: torch.fx.GraphModule, bounds: Sequence[Bound], inputs: Sequence[Any]
) -> dict[Bound, set[str]]:
    """The sides ("below", "above") of each bound on which the operand has finite values in a run on `inputs`."""
    wanted = {bound.operand for bound in bounds}
    values: dict[str, torch.Tensor] = {}

    class Interpreter(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            value = super().run_node(n)
            if n.name in wanted and isinstance(value, torch.Tensor):
                values[n.name] = value.detach()
            return value

    with torch.no_grad():
        Interpreter(module).run(*inputs)
    return {
        bound: set(_sides(values[bound.operand], bound.value)) for bound in bounds if bound.operand in values
    }


def unreached(
    module: torch.fx.GraphModule | None, bounds: Sequence[Bound], reached: Mapping[Bound, set[str]]
) -> Iterator[tuple[Bound, str, bool]]:
    """Each bound with a side that no value reached, and whether a value could: dtype and sign rule some out."""
    for bound in bounds:
        for side in sorted({"below", "above"} - reached.get(bound, set())):
            yield bound, side, module is not None and side not in _sides_ruled_out(module, bound)


def _sides_ruled_out(module: torch.fx.GraphModule, bound: Bound) -> set[str]:
    node = next(node for node in module.graph.nodes if node.name == bound.operand)
    value = node.meta.get("val", node.meta.get("tensor_meta"))
    limits = torch.finfo(value.dtype) if value is not None and value.dtype.is_floating_point else None
    out = set()
    if limits is not None and bound.value >= limits.max:
        out.add("above")
    if (limits is not None and bound.value <= limits.min) or (bound.value <= 0 and _never_negative(node)):
        out.add("below")
    return out


def _sides(value: torch.Tensor, bound: float) -> Iterator[str]:
    finite = value[value.isfinite()] if value.is_floating_point() else value
    if bool((finite < bound).any()):
        yield "below"
    if bool((finite > bound).any()):
        yield "above"


def _bounds(node: torch.fx.Node) -> Iterator[Bound]:
    name = _name(node)
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], torch.fx.Node):
        return
    operand = node.args[0].name
    arguments = _arguments(node)
    if name in ("clamp", "clamp_min", "clamp_max", "hardtanh"):
        low = arguments.get("min", arguments.get("min_val"))
        high = arguments.get("max", arguments.get("max_val"))
        for kind, value in (("clamp min", low), ("clamp max", high)):
            if isinstance(value, int | float):
                yield Bound(kind, float(value), operand)
    elif name == "relu":
        yield Bound("clamp min", 0.0, operand)
    elif name == "threshold":
        yield Bound("threshold", float(arguments["threshold"]), operand)
    elif name in _COMPARISONS and isinstance(arguments.get("other"), int | float):
        yield Bound("comparison", float(arguments["other"]), operand)
    elif name == "tanh" and any(_scales(user) for user in node.users):
        yield Bound("soft cap", 1.0, operand)
        yield Bound("soft cap", -1.0, operand)


def _scales(node: torch.fx.Node) -> bool:
    return _name(node) == "mul" and any(isinstance(arg, int | float) for arg in node.args)


def _never_negative(node: torch.fx.Node) -> bool:
    name = _name(node)
    if name in _NEVER_NEGATIVE or (name == "pow" and node.args[1:] and node.args[1] == 2):
        return True
    return name in _KEEPS_SIGN and isinstance(node.args[0], torch.fx.Node) and _never_negative(node.args[0])


def _name(node: torch.fx.Node) -> str:
    packet = getattr(node.target, "overloadpacket", None)
    return str(getattr(packet, "__name__", "")) if packet is not None else ""


def _arguments(node: torch.fx.Node) -> Mapping[str, Any]:
    schema = getattr(node.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema is not None else []
    return dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
