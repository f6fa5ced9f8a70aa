"""May this match be replaced? The documented constraints of the fused op, and what the graph expects back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.fx
from torch._guards import detect_fake_mode
from torch._inductor.pattern_matcher import Match
from torch.utils._python_dispatch import TorchDispatchMode

from fusionkit.errors import FusionKitError
from fusionkit.npu.constraints import violations
from fusionkit.passes.registering import PatternClass, argument_names


class _RefusedError(FusionKitError):
    """Carries the reason out of the dispatch mode."""


class _ConstraintCheck(TorchDispatchMode):
    """Holds every npu:: (and kit) op call of a replacement against the table of documented constraints."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func.namespace in ("npu", "fusionkit"):
            broken = violations(func._schema.name.split("::")[1], *args, **(kwargs or {}))
            if broken:
                raise _RefusedError(str(broken[0]))
        return func(*args, **(kwargs or {}))


def refuse_replacement(pattern: PatternClass, match: Match) -> str | None:
    """The reason why the replacement must not be put in, or None.

    It is run once on the site's fake tensors: every npu op must satisfy its documented constraints, and the
    result must have the shape of what it replaces, and its dtype, unless every user casts it to the new one.
    """
    arguments = [_value(match.kwargs[name]) for name in argument_names(pattern)]
    mode = detect_fake_mode(arguments)
    if mode is None:
        return "an operand has no tensor metadata (missing_meta)"
    try:
        with torch.no_grad(), mode, _ConstraintCheck():  # type: ignore[no-untyped-call]
            result = pattern.replacement(*arguments)
    except FusionKitError as error:
        return str(error)
    except (RuntimeError, TypeError, ValueError) as error:
        return f"the replacement does not run here: {(str(error).splitlines() or ['?'])[0]}"
    return _changed_output(match.output_nodes(), result)


def _value(argument: Any) -> Any:
    return argument.meta.get("val") if isinstance(argument, torch.fx.Node) else argument


def _changed_output(roots: list[torch.fx.Node | None], result: Any) -> str | None:
    """What the replacement's outputs would change for the graph around them."""
    results = list(result) if isinstance(result, tuple | list) else [result]
    if len(results) != len(roots):
        return f"the replacement gives {len(results)} outputs for {len(roots)}"
    for root, new in zip(roots, results, strict=True):
        old = None if root is None else root.meta.get("val")
        if root is None or not isinstance(old, torch.Tensor):
            continue
        if tuple(old.shape) != tuple(new.shape):
            return f"the output's shape would change from {list(old.shape)} to {list(new.shape)}"
        if old.dtype != new.dtype and not all(_casts_to(user, new.dtype) for user in root.users):
            return f"the output's dtype would change from {_short(old.dtype)} to {_short(new.dtype)}"
    return None


def _casts_to(user: torch.fx.Node, dtype: torch.dtype) -> bool:
    return user.target is torch.ops.aten._to_copy.default and user.kwargs.get("dtype") == dtype


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
