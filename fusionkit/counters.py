"""Counters of sites: which calls in an eager run are sites of a primitive, independent of any graph.

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

    `in_caller`: the primitive's math is in the code that calls the module, not in its forward. `anywhere`: also valid
    for models outside the table of subjects; False if it relies on knowing the model.
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

    A function is `module:name` or, for a method, `module:Class.name`. Only loaded modules are searched, since a
    function that no model has imported is not called.
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


def is_named(*names: str) -> Callable[[Any], bool]:
    """The predicate for modules of a class with one of these names."""
    return lambda module: type(module).__name__ in names


def is_swiglu_mlp(module: Any) -> bool:
    """down_proj(silu(gate_proj(x)) * up_proj(x)): transformers' LlamaMLP and its copies (Qwen3, DeepSeek-V3)."""
    names = ("gate_proj", "up_proj", "down_proj")
    return all(hasattr(module, name) for name in names) and is_silu(getattr(module, "act_fn", None))


def is_packed_swiglu_mlp(module: Any) -> bool:
    """gate, up = gate_up_proj(x).chunk(2); down_proj(up * silu(gate)): transformers' Glm4MLP."""
    linears = [type(getattr(module, name, None)).__name__ for name in ("gate_up_proj", "down_proj")]
    return linears == ["Linear", "Linear"] and is_silu(getattr(module, "activation_fn", None))


def is_layer_norm_without_affine(module: Any) -> bool:
    """torch.nn.LayerNorm itself, no subclass, with elementwise_affine=False."""
    cls = type(module)
    return (cls.__module__, cls.__name__) == ("torch.nn.modules.normalization", "LayerNorm") and (
        not module.elementwise_affine
    )


# Rotates one tensor: FLUX, FLUX.2 and HunyuanVideo call it for q and for k (HunyuanVideo for the latents' part).
DIFFUSERS_ROTATION = FunctionCounter(
    "rope", "call of apply_rotary_emb", ("diffusers.models.embeddings:apply_rotary_emb",)
)


def rotation(function: str) -> FunctionCounter:
    """The counter of a library's function `module:name` that rotates one tensor."""
    return FunctionCounter("rope", f"call of {function.partition(':')[2]}", (function,))


def rotation_of_q_and_k(module: str, *names: str) -> FunctionCounter:
    """The counter of a library's functions that rotate q and k in one call; default `apply_rotary_pos_emb`."""
    functions = tuple(f"{module}:{name}" for name in names or ("apply_rotary_pos_emb",))
    return FunctionCounter("rope", "q and k of a call of apply_rotary_pos_emb", functions, sites=2)


def experts_gate(experts: str) -> FunctionCounter:
    """The counter of the gate of an experts class, `module:Class`, configured with SiLU.

    transformers.integrations.moe puts `_apply_gate` into the class; its grouped and its batched forward, of which a
    model takes one by default, call it once for the tokens of all experts.
    """
    return FunctionCounter(
        "swiglu", "call of the experts' _apply_gate", (f"{experts}._apply_gate",), anywhere=False
    )
