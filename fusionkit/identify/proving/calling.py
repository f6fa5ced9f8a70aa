"""One call of one side: inputs converted and copied, outputs by path, gradients of all that takes part."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_map

Tensor = torch.Tensor

NOT_DIFFERENTIATED = (
    "cos", "sin", "freqs_cos", "freqs_sin", "position_embeddings", "freqs_cis", "freqs", "image_rotary_emb",
    "rotary_emb", "attention_mask", "attn_mask", "mask",
)  # fmt: skip
"""Arguments that a model makes without gradients."""

KEPT_FLOAT32 = ("freqs_cis", "freqs", "image_rotary_emb", "rotary_emb", "freqs_cos", "freqs_sin")
"""Arguments that models hold in float32 beside activations of any dtype (diffusers' rotary tables)."""

WRITTEN = "written "
"""What the name of an argument that a call writes to is told with, among the outputs."""

_DIRECTION = 7  # seed of the direction in which gradients are taken


def called(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """The result of a call with every argument by name; tensors are copied, so that none is written to."""
    return function(**{name: tree_map(_copied, value) for name, value in arguments.items()})


def outcome(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs of a call by path, and the tensors among its arguments that it wrote to."""
    given = {name: tree_map(_copied, value) for name, value in arguments.items()}
    return leaves(function(**given)) | _written(arguments, given)


def same_outcome(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two outcomes hold the same numbers; NaN equals NaN."""
    return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())


def _written(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{WRITTEN}{name}": value
        for name, value in after.items()
        if isinstance(value, Tensor) and not _same(value, before[name])
    }


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        floating = one.is_floating_point() or one.is_complex()
        near = floating and torch.allclose(one, other, 0.0, 0.0, equal_nan=True)
        return bool(near) or bool(torch.equal(one, other))
    return isinstance(one, Tensor) is isinstance(other, Tensor)


def converted(arguments: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """The arguments with floats, and modules among them, in `dtype`."""

    def convert(value: Any) -> Any:
        if isinstance(value, nn.Module):
            return copy.deepcopy(value).to(dtype)
        if isinstance(value, Tensor) and value.is_floating_point():
            least = torch.finfo(dtype).min  # a mask's lowest number stays a number
            return value.clamp(min=least).to(dtype)
        return value

    return {n: v if n in KEPT_FLOAT32 else tree_map(convert, v) for n, v in arguments.items()}


def lifted(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with float64 copies of the modules among them; tensors are lifted by the reference run."""
    return {
        name: copy.deepcopy(value).double() if isinstance(value, nn.Module) else value
        for name, value in arguments.items()
    }


def leaves(output: Any) -> dict[str, Any]:
    """Outputs by path; one tensor is `output`."""
    if isinstance(output, Tensor) or output is None:
        return {"output": output}
    found = tree_flatten_with_path(output, is_leaf=lambda value: value is None)[0]
    return {f"output{keystr(path)}": leaf for path, leaf in found}


def with_gradients(
    function: Callable[..., Any],
    owner: nn.Module | None,
    arguments: Mapping[str, Any],
    kept: frozenset[str],
    context: contextlib.AbstractContextManager[Any],
    unread: tuple[int, int],
) -> tuple[dict[str, Any], dict[str, Tensor | None]]:
    """Outputs, and the gradients of inputs and weights of the sum of the `kept` outputs in a random direction.

    The call alone runs within `context`: backward does not belong under autocast. `unread`: (rows, length), the first
    rows of the last sequence, from which no gradient comes.
    """
    given = {
        name: tree_map(_copied if name in NOT_DIFFERENTIATED else _differentiated, value)
        for name, value in arguments.items()
    }
    handed = {name: tree_map(_flowing, value) for name, value in given.items()}
    with context:
        outputs = leaves(function(**handed))
    outputs |= _written(arguments, handed)
    sources = _sources(owner, given)
    generator = torch.Generator().manual_seed(_DIRECTION)
    total: Tensor | None = None
    for name in sorted(kept & set(outputs)):
        value = outputs[name]
        if isinstance(value, Tensor) and value.is_floating_point() and value.requires_grad:
            # eighths: the same direction in every dtype, the float64 of the reference included
            direction = torch.randint(-8, 9, value.shape, generator=generator).to(value.dtype) / 8
            _leave_out(direction, *unread)
            part = (value * direction).sum()
            total = part if total is None else total + part
    if total is None or not sources:
        return outputs, {}
    found = torch.autograd.grad(total, list(sources.values()), allow_unused=True)
    plain = {name: value.detach() if isinstance(value, Tensor) else value for name, value in outputs.items()}
    return plain, dict(zip(sources, found, strict=True))


def _leave_out(direction: Tensor, rows: int, length: int) -> None:
    """Zero for the first rows of the last sequence, whose axis is the one of that length."""
    if rows and direction.dim() >= 3:
        axis = 1 if direction.shape[1] == length else direction.dim() - 2
        direction[-1].narrow(axis - 1, 0, rows).zero_()


def _sources(owner: nn.Module | None, given: Mapping[str, Any]) -> dict[str, Tensor]:
    """What is differentiated by: floating inputs, and the weights of every module that takes part."""
    found: dict[str, Tensor] = {}
    modules = {"": owner} | {f"{n}.": v for n, v in given.items() if isinstance(v, nn.Module)}
    for prefix, module in modules.items():
        if module is not None:
            found |= {f"{prefix}{name}": weight for name, weight in module.named_parameters()}
    for name, value in given.items():
        if isinstance(value, Tensor) and value.requires_grad:
            found[name] = value
    return {f"gradient of {name}": value for name, value in found.items() if value.requires_grad}


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _differentiated(value: Any) -> Any:
    if isinstance(value, Tensor):
        value = value.detach().clone()
        return value.requires_grad_() if value.is_floating_point() else value
    return value


def _flowing(value: Any) -> Any:
    """A copy that may be written to, and through which gradients flow."""
    return value.clone() if isinstance(value, Tensor) and value.requires_grad else value


def one_line(error: BaseException) -> str:
    """Type and first line of an error."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
