"""Running a region on random inputs of its own shapes: a quick comparison, and the proof against float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_leaves, tree_map

from fusionkit.errors import USER_CODE_ERRORS, MisuseError
from fusionkit.match.repairing.region import Region, is_number
from fusionkit.numeric.layouts import size_literals
from fusionkit.numeric.replay import SiteReplay, replay_site
from fusionkit.numeric.samples import example_like

_CLOSE = 0.05  # a relative error well above the rounding of one computation in bfloat16


def region_function(region: Region, *, cast_to: torch.dtype | None = None) -> Callable[..., Any]:
    """The region's own nodes as a function of its inputs, to be run on CPU tensors.

    `cast_to`: the dtype to cast a single output to. Raises MisuseError when a size of the region is symbolic.
    """
    for node in region.nodes:
        symbolic = next((operand for operand in node.all_input_nodes if is_number(operand)), None)
        if symbolic is not None:
            raise MisuseError(f"size '{symbolic.name}' is symbolic; capture with fixed sizes to run the site")

    def run(*tensors: torch.Tensor) -> Any:
        values: dict[torch.fx.Node, Any] = dict(zip(region.inputs, tensors, strict=True))

        def value(item: Any) -> Any:
            if isinstance(item, torch.fx.Node):
                return values[item]
            return torch.device("cpu") if isinstance(item, torch.device) else item

        for node in region.nodes:
            target: Any = node.target
            values[node] = target(*tree_map(value, node.args), **tree_map(value, node.kwargs))
        results = [values[node] for node in region.outputs]
        if cast_to is not None and len(results) == 1:
            results = [results[0].to(cast_to)]
        return results[0] if len(results) == 1 else tuple(results)

    return run


def _random_inputs(region: Region, seed: int) -> list[torch.Tensor]:
    """CPU tensors of the inputs' sizes, strides and dtypes: normal values; vectors are gains away from 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    return [_draw(value, generator) for value in region.input_values]


def plausible(region: Region, candidate: Callable[..., Any]) -> bool:
    """Whether `candidate` gives about the region's results on its inputs: a filter, no proof."""
    try:
        inputs = _random_inputs(region, 0)
        with torch.no_grad():
            actual = _tensors(candidate(*inputs))
            if [a.shape for a in actual] != [region.value(node).shape for node in region.outputs]:
                return False
            expected = _tensors(region_function(region)(*inputs))
    except USER_CODE_ERRORS:
        return False
    if len(expected) != len(actual):
        return False
    return bool(expected) and all(map(_close, expected, actual))


def prove(
    region: Region,
    candidate: Callable[..., Any],
    *,
    eps: float | None = None,
    activations: Sequence[int] | None = None,
    seed: int = 0,
    name: str = "site",
) -> SiteReplay:
    """Compare `candidate` with the region's own nodes and their float64 reference, at the region's shapes.

    If the candidate of a single-output region returns another dtype, the region's output is cast to it before the
    comparison. Raises what the candidate raises on the first call.
    """
    inputs = _random_inputs(region, seed)
    with torch.no_grad():
        made = _tensors(candidate(*inputs))
    own = region.value(region.outputs[0]).dtype
    cast_to = made[0].dtype if len(region.outputs) == 1 and made and made[0].dtype != own else None
    return replay_site(
        region_function(region, cast_to=cast_to),
        candidate,
        inputs,
        eps=eps,
        seed=seed,
        activations=activations,
        name=name,
        literals=size_literals(region.nodes),
    )


def _draw(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    sizes = [*value.shape, *value.stride()]
    if not all(type(size) is int for size in sizes):
        raise MisuseError(
            f"a size of {list(value.shape)} is symbolic; capture with fixed sizes to run the site"
        )
    return example_like(value, generator)


def _tensors(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _close(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    if expected.shape != actual.shape:
        return False
    a, b = expected.double(), actual.double()
    if not (bool(a.isfinite().all()) and bool(b.isfinite().all())):
        return False
    scale = float(a.norm())
    return float((a - b).norm()) <= _CLOSE * scale if scale else not bool(b.any())
