"""Running a region on random inputs of its own shapes: a quick comparison, and the proof against float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_leaves, tree_map

from fusionkit.errors import USER_CODE_ERRORS, MisuseError
from fusionkit.match.repairing.region import Region, is_number
from fusionkit.numeric.layouts import size_literals
from fusionkit.numeric.reference import run_float64
from fusionkit.numeric.replay import SiteReplay, replay_site
from fusionkit.numeric.samples import example_like
from fusionkit.verdict import Verdict

_CLOSE = 0.05  # a relative error well above the rounding of one computation in bfloat16
_EXACT = 1e-5  # a relative error well above the rounding of one computation in float32
_OWN_ERRORS = 16  # times the original's own error may a candidate be off in the filter
_LOW = (torch.bfloat16, torch.float16)
_SCALES = ((1.0, 1.0), (1e-3, 1.0), (1e2, 1.0), (1.0, 1e2))
"""Factors of the tensors and of the vectors in the draws of `exact`: they reach limits, and rows near a norm's eps."""


def region_function(
    region: Region, *, cast_to: torch.dtype | None = None, in_float32: bool = False
) -> Callable[..., Any]:
    """The region's own nodes as a function of its inputs, to be run on CPU tensors.

    `cast_to`: the dtype to cast a single output to. `in_float32`: casts to half precision give float32. Raises
    MisuseError when a size of the region is symbolic.
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
            if isinstance(item, torch.dtype):
                return torch.float32 if in_float32 and item in _LOW else item
            return torch.device("cpu") if isinstance(item, torch.device) else item

        for node in region.nodes:
            target: Any = node.target
            values[node] = target(*tree_map(value, node.args), **tree_map(value, node.kwargs))
        results = [values[node] for node in region.outputs]
        if cast_to is not None and len(results) == 1:
            results = [results[0].to(cast_to)]
        return results[0] if len(results) == 1 else tuple(results)

    return run


def _random_inputs(region: Region, seed: int, *, in_float32: bool = False) -> list[torch.Tensor]:
    """CPU tensors of the inputs' sizes, strides and dtypes: normal values; vectors are gains away from 0 and 1.

    `in_float32`: float32 in place of half precision.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = [_draw(value, generator) for value in region.input_values]
    return [value.float() if in_float32 and value.dtype in _LOW else value for value in drawn]


def results_of(region: Region, candidate: Callable[..., Any]) -> list[torch.Tensor]:
    """The tensors that `candidate` gives for random inputs of the region."""
    with torch.no_grad():
        return _tensors(candidate(*_random_inputs(region, 0)))


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
    some = any(bool(value.isfinite().any()) for value in expected)
    return some and all(map(_close, expected, actual))


def exact(region: Region, candidate: Callable[..., Any]) -> bool:
    """Whether `candidate` computes what the region computes, apart from rounding: a filter, no proof.

    Both run in float32, which shows differences that half precision hides, on inputs of several sizes and with a NaN.
    In half precision if the candidate takes or gives no float32.
    """
    in_float32 = computes_in_float32(region, candidate)
    original = region_function(region, in_float32=in_float32)
    limit = _EXACT if in_float32 else _CLOSE
    for index, scales in enumerate(_SCALES):
        inputs = [_scaled(value, scales) for value in _random_inputs(region, index, in_float32=in_float32)]
        if index == 0 and not _same_on(original, candidate, [_with_nan(inputs[0]), *inputs[1:]], limit):
            return False
        if not _same_on(original, candidate, inputs, limit):
            return False
    return True


def off_by(region: Region, candidate: Callable[..., Any]) -> int:
    """How much farther `candidate` is from the float64 reference than the region, in powers of two, in its dtypes."""
    inputs = _random_inputs(region, 0)
    original = region_function(region)
    reference = _tensors(run_float64(original, list(inputs)))
    made, own = results_of(region, candidate), results_of(region, original)
    pairs = [(_error(c, b), _error(c, a)) for a, b, c in zip(own, made, reference, strict=True)]
    ratios = (theirs / max(ours, _EXACT) for theirs, ours in pairs)
    return max(round(math.log2(min(max(1.0, ratio), 2.0**60))) for ratio in ratios)


def computes_in_float32(region: Region, candidate: Callable[..., Any]) -> bool:
    """Whether `candidate` takes the region's inputs in float32 and gives float32 for each output of the region."""
    inputs = _random_inputs(region, 0, in_float32=True)
    try:
        with torch.no_grad():
            made = _tensors(candidate(*inputs))
            own = _tensors(region_function(region, in_float32=True)(*inputs))
    except USER_CODE_ERRORS:
        return False
    return bool(made) and [a.dtype for a in made] == [b.dtype for b in own]


def _same_on(
    original: Callable[..., Any], candidate: Callable[..., Any], inputs: Sequence[torch.Tensor], limit: float
) -> bool:
    """Whether the results agree on these inputs, within `limit` or within what the original itself is off."""
    try:
        with torch.no_grad():
            expected, actual = _tensors(original(*inputs)), _tensors(candidate(*inputs))
            if all(_close(a, b, limit) for a, b in zip(expected, actual, strict=True)):
                return True
            reference = _tensors(run_float64(original, list(inputs)))
    except USER_CODE_ERRORS:
        return False
    return all(
        _close(c, b, max(limit, _OWN_ERRORS * _error(c, a)))
        for a, b, c in zip(expected, actual, reference, strict=True)
    )


def _scaled(value: torch.Tensor, scales: tuple[float, float]) -> torch.Tensor:
    return value * scales[value.dim() == 1] if value.is_floating_point() else value


def _with_nan(value: torch.Tensor) -> torch.Tensor:
    """A copy with NaN as its first element."""
    if not value.is_floating_point() or not value.numel():
        return value
    copied = value.clone(memory_format=torch.contiguous_format)
    copied.view(-1)[0] = math.nan
    return copied


def prove(
    region: Region,
    candidate: Callable[..., Any],
    *,
    eps: float | None = None,
    activations: Sequence[int] | None = None,
    seed: int = 0,
    name: str = "site",
    in_float32: bool = True,
) -> SiteReplay:
    """Compare `candidate` with the region's own nodes and their float64 reference, at the region's shapes.

    In the site's dtypes and then, if the candidate computes in float32 and `in_float32`, in float32; a difference there
    is the result. If the candidate of a single-output region returns another dtype, the region's output is cast to it
    before the comparison. Raises what the candidate raises on the first call.
    """
    replay = partial(
        replay_site,
        replacement=candidate,
        eps=eps,
        seed=seed,
        activations=activations,
        literals=size_literals(region.nodes),
    )
    inputs = _random_inputs(region, seed)
    with torch.no_grad():
        made = _tensors(candidate(*inputs))
    own = region.value(region.outputs[0]).dtype
    cast_to = made[0].dtype if len(region.outputs) == 1 and made and made[0].dtype != own else None
    proof: SiteReplay = replay(region_function(region, cast_to=cast_to), inputs=inputs, name=name)
    low = any(value.dtype in _LOW for value in inputs)
    if proof and in_float32 and low and computes_in_float32(region, candidate):
        widened = _random_inputs(region, seed, in_float32=True)
        original = region_function(region, in_float32=True)
        other: SiteReplay = replay(original, inputs=widened, name=f"{name} in float32")
        return other if other.verdict is Verdict.FAIL else proof
    return proof


def _draw(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    sizes = [*value.shape, *value.stride()]
    if not all(type(size) is int for size in sizes):
        raise MisuseError(
            f"a size of {list(value.shape)} is symbolic; capture with fixed sizes to run the site"
        )
    return example_like(value, generator)


def _tensors(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _close(expected: torch.Tensor, actual: torch.Tensor, limit: float = _CLOSE) -> bool:
    """Whether the finite values agree within a relative error of `limit`, and the others stand in the same places."""
    return expected.shape == actual.shape and _error(expected, actual) <= limit


def _error(expected: torch.Tensor, actual: torch.Tensor) -> float:
    """The relative error of the finite values in the L2 norm; infinite if others are finite."""
    a, b = expected.double(), actual.double()
    finite = a.isfinite()
    if not torch.equal(finite, b.isfinite()):
        return math.inf
    a, b = a[finite], b[finite]
    scale = float(a.norm())
    return float((a - b).norm()) / scale if scale else math.inf if bool(b.any()) else 0.0
