"""What counts as a site of a primitive in an eager run: one literal table, independent of any graph.

A module row counts forward calls of matching modules; a function row counts calls of a library's function.
A call inside an open site of the same primitive is part of that site and not counted again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True)
class FunctionCounter:
    """Counts the calls of `function` (`module:name`) that `counts` accepts, `sites` for each.

    The function is looked up among the modules that are loaded; one that no model has imported is not
    called either.
    """

    primitive: str
    rule: str
    function: str
    sites: int = 1
    counts: Callable[[Mapping[str, Any]], bool] = lambda _: True
    anywhere: bool = True


def _is_rms_norm(module: nn.Module) -> bool:
    return type(module).__name__.endswith("RMSNorm")


def _is_plain_layer_norm(module: nn.Module) -> bool:
    return type(module) is nn.LayerNorm and not module.elementwise_affine


def _is_gelu_tanh(module: nn.Module) -> bool:
    return type(module).__name__ == "GELUTanh"


def _is_swiglu(module: nn.Module) -> bool:
    projections = all(hasattr(module, name) for name in ("gate_proj", "up_proj", "down_proj"))
    return projections and type(getattr(module, "act_fn", None)).__name__ in ("SiLU", "SiLUActivation")


COUNTERS: tuple[ModuleCounter | FunctionCounter, ...] = (
    # torch.nn.RMSNorm, diffusers.models.normalization.RMSNorm, transformers' LlamaRMSNorm and its copies.
    ModuleCounter("rms_norm", "forward of a module whose class name ends in RMSNorm", _is_rms_norm),
    FunctionCounter("rms_norm", "call of F.rms_norm outside such a module", "torch.nn.functional:rms_norm"),
    # diffusers.models.embeddings.apply_rotary_emb turns one tensor; FLUX calls it for q and for k.
    FunctionCounter("rope", "call of apply_rotary_emb", "diffusers.models.embeddings:apply_rotary_emb"),
    # transformers.models.llama.modeling_llama.apply_rotary_pos_emb turns q and k in one call.
    FunctionCounter(
        "rope",
        "q and k of a call of apply_rotary_pos_emb",
        "transformers.models.llama.modeling_llama:apply_rotary_pos_emb",
        sites=2,
    ),
    # torch.nn.GELU, diffusers' GELU and bare calls all end in F.gelu: counted there, and only there.
    FunctionCounter(
        "gelu",
        'call of F.gelu with approximate="tanh"',
        "torch.nn.functional:gelu",
        counts=lambda keywords: keywords.get("approximate") == "tanh",
    ),
    # transformers.activations.GELUTanh keeps F.gelu in a functools.partial, or writes the formula out.
    ModuleCounter("gelu", "forward of transformers' GELUTanh", _is_gelu_tanh),
    # FLUX: norm1, norm1_context, norm2, norm2_context, norm, norm_out; scaled and shifted by whoever calls
    # them.
    ModuleCounter(
        "ada_layer_norm",
        "forward of a torch.nn.LayerNorm without affine, whose caller scales and shifts",
        _is_plain_layer_norm,
        in_caller=True,
        anywhere=False,
    ),
    # transformers.models.llama.modeling_llama.LlamaMLP and its copies: down_proj(silu(gate_proj(x)) *
    # up_proj(x)).
    ModuleCounter("swiglu", "forward of an MLP with gate_proj, up_proj, down_proj and SiLU", _is_swiglu),
)


def primitives() -> tuple[str, ...]:
    """The primitives that have a counter, in the order of the table."""
    return tuple(dict.fromkeys(row.primitive for row in COUNTERS))
