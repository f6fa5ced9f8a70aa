"""What counts as a site of a primitive in an eager run, independent of any graph.

A module counter counts forward calls of matching modules; a function counter counts calls of a library's function.
A call inside an open site of the same primitive is part of that site and not counted again. The rows of `fusions`
hold the counters that fit any model, the rows of `subjects` those for the code of one library module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class ModuleCounter:
    """Counts the forward calls of the modules that `matches` accepts.

    `in_caller`: the math that makes it this primitive is written where the module is called, not in its
    forward. `anywhere`: also right for a model outside the table; False where the row relies on knowing the
    model.
    """

    primitive: str
    rule: str
    matches: Callable[[nn.Module], bool]
    in_caller: bool = False
    anywhere: bool = True


def _any_call(_keywords: Mapping[str, Any]) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class FunctionCounter:
    """Counts the calls of any of `functions` that `counts` accepts by their keywords, `sites` for each.

    A function is `module:name` or, for a method, `module:Class.name`. It is looked up among the modules that
    are loaded; one that no model has imported is not called either.
    """

    primitive: str
    rule: str
    functions: tuple[str, ...]
    sites: int = 1
    counts: Callable[[Mapping[str, Any]], bool] = _any_call
    anywhere: bool = True


SiteCounter = ModuleCounter | FunctionCounter


def is_silu(activation: Any) -> bool:
    """Whether an activation module is SiLU: torch.nn's, or transformers'."""
    return type(activation).__name__ in ("SiLU", "SiLUActivation")


# Turns the one tensor it is given: FLUX, FLUX.2 and HunyuanVideo call it for q and for k (HunyuanVideo for the latents'
# part of them).
DIFFUSERS_ROTATION = FunctionCounter(
    "rope", "call of apply_rotary_emb", ("diffusers.models.embeddings:apply_rotary_emb",)
)


def rotation(function: str) -> FunctionCounter:
    """The counter of a library's function `module:name` that turns the one tensor it is given."""
    return FunctionCounter("rope", f"call of {function.partition(':')[2]}", (function,))


def rotation_of_q_and_k(module: str, *names: str) -> FunctionCounter:
    """The counter of a library's functions that turn q and k in one call; `apply_rotary_pos_emb` if none is named."""
    functions = tuple(f"{module}:{name}" for name in names or ("apply_rotary_pos_emb",))
    return FunctionCounter("rope", "q and k of a call of apply_rotary_pos_emb", functions, sites=2)


def experts_gate(experts: str) -> FunctionCounter:
    """The counter of the gate of a class of experts, `module:Class`, whose configuration says SiLU.

    transformers.integrations.moe puts `_apply_gate` into the class; its grouped and its batched forward, of which a
    model takes one by default, call it once for the tokens of all experts.
    """
    return FunctionCounter(
        "swiglu", "call of the experts' _apply_gate", (f"{experts}._apply_gate",), anywhere=False
    )
