"""Build what a site's symbol names: a function, a module, a method of one, or an attention processor."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import nn

from fusionkit.errors import USER_CODE_ERRORS, MisuseError
from fusionkit.identify.proving.configurations import small_configs
from fusionkit.identify.proving.guesses import build_guess
from fusionkit.identify.proving.recipes import BUILD, GELU, SILU
from fusionkit.identify.proving.setting import Setting

_GIVEN_ANYWAY = (
    "layer_idx",
    "dim_head",
    "heads",
    "kv_heads",
    "dropout",
    "eps",
    "norm_eps",
    "epsilon",
    "variance_epsilon",
)  # defaults that are large, random, not there or the op's own
_GIVEN = "attn"  # the parameter by which a processor gets its attention module


@dataclass(frozen=True, slots=True)
class Built:
    """The callable of one side: `owner` (None for a function) and what is called on it."""

    owner: Any
    function: Callable[..., Any]
    parameters: Mapping[str, inspect.Parameter]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    attention: nn.Module | None = None

    def copied(
        self, convert: Callable[[nn.Module], nn.Module]
    ) -> tuple[Callable[..., Any], nn.Module | None]:
        """The callable over a converted copy of its module, and that copy."""
        if not isinstance(self.owner, nn.Module):
            return self.function, None
        owner = convert(copy.deepcopy(self.owner))
        method = self.function.__name__ if inspect.ismethod(self.function) else ""
        return (getattr(owner, method) if method else owner), owner


def build(module: ModuleType, setting: Setting) -> Built:
    """The symbol's callable over newly drawn weights; `setting` gets its config and width.

    Raises MisuseError where no recipe is known for a parameter, and what building raises.
    """
    name, _, method = setting.site.symbol.partition(".")
    found = getattr(module, name, None)
    if found is None:
        raise MisuseError(f"{name} is not there after importing the module")
    if not inspect.isclass(found):
        setting.config = next(small_configs(module, setting.source, name, setting.sizes), None)
        return Built(None, found, _parameters(found))
    owner, arguments = _construct(found, setting)
    called = getattr(owner, method) if method else _called(owner)
    if isinstance(owner, nn.Module):
        draw_weights(owner.eval(), setting.generator)
        setting.width = _width(owner, setting)
    parameters = _parameters(called)
    attention = _attention(module, parameters, setting) if _GIVEN in parameters else None
    return Built(
        owner,
        called if method or not isinstance(owner, nn.Module) else owner,
        parameters,
        arguments,
        attention,
    )


def rebuild(module: ModuleType, setting: Setting, original: Built) -> Built:
    """The same of the replaced module: the same arguments, and the original's weights.

    Raises MisuseError where its weights have other names, and what building raises.
    """
    name, _, method = setting.site.symbol.partition(".")
    found = getattr(module, name)
    if not inspect.isclass(found):
        return Built(None, found, _parameters(found))
    torch.manual_seed(0)
    owner = found(**copy.deepcopy(dict(original.arguments)))
    if isinstance(owner, nn.Module):
        mine, theirs = set(owner.state_dict()), set(original.owner.state_dict())
        if mine != theirs:
            raise MisuseError(f"the replaced {name} has other weights: {sorted(mine ^ theirs)[0]}")
        owner.eval().load_state_dict(original.owner.state_dict())
        _copy_buffers(original.owner, owner)
    called = getattr(owner, method) if method else _called(owner)
    function = called if method or not isinstance(owner, nn.Module) else owner
    return Built(owner, function, _parameters(called), original.arguments, original.attention)


def _copy_buffers(original: nn.Module, replaced: nn.Module) -> None:
    """Buffers that are no part of the state are drawn as the others are, and have to be the same too."""
    held = dict(replaced.named_buffers())
    for name, value in original.named_buffers():
        if name in held and held[name].shape == value.shape:
            held[name].copy_(value)


def draw_weights(module: nn.Module, generator: torch.Generator) -> None:
    """Random weights away from neutral ones: norm weights around 1 but not 1, biases not 0, matrices by fan-in."""
    neutral = [
        b for b in module.buffers() if b.dim() == 1 and b.is_floating_point() and bool((b == b[:1]).all())
    ]
    with torch.no_grad():
        for value in [*module.parameters(), *neutral]:
            if not value.is_floating_point():
                continue
            if value.dim() <= 1:
                value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
                value.mul_(torch.where(torch.rand(value.shape, generator=generator) < 0.25, -1.0, 1.0))
            else:
                spread = (
                    float(min(value.shape[-1], value.shape[-2] if value.dim() == 3 else value.shape[-1]))
                    ** -0.5
                )
                value.copy_(torch.randn(value.shape, generator=generator) * spread)


def _construct(cls: type, setting: Setting) -> tuple[Any, dict[str, Any]]:
    """An object of the class, and the arguments it was built with."""
    torch.manual_seed(0)
    parameters = _parameters(cls)
    if not any(name == "config" or name.endswith("_config") for name in parameters):
        arguments = _arguments(cls, parameters, setting, None)
        return cls(**copy.deepcopy(arguments)), arguments
    refused: BaseException = MisuseError(f"no configuration class is found for {cls.__name__}")
    for config in small_configs(setting.module, setting.source, cls.__name__, setting.sizes):
        arguments = _arguments(cls, parameters, setting, config)
        try:
            owner = cls(**copy.deepcopy(arguments))
        except USER_CODE_ERRORS as error:
            refused = error
            continue
        setting.config = config
        return owner, arguments
    raise refused


def _arguments(
    cls: type, parameters: Mapping[str, inspect.Parameter], setting: Setting, config: Any
) -> dict[str, Any]:
    told: dict[str, Any] = {}
    activations = {"npu_swiglu": SILU, "npu_geglu": GELU}.get(setting.site.op, {})
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is not parameter.empty and name not in _GIVEN_ANYWAY:
            continue
        if name == "config" or name.endswith("_config"):
            told[name] = config
        elif name in activations:
            told[name] = activations[name]
        elif name in BUILD:
            value = BUILD[name]
            told[name] = getattr(setting.sizes, value, value) if isinstance(value, str) else value
        else:
            told[name] = build_guess(name, parameter, setting)
            if told[name] is None:
                raise MisuseError(f"no recipe for parameter {name} of {cls.__name__}")
    return told


def _attention(
    module: ModuleType, parameters: Mapping[str, inspect.Parameter], setting: Setting
) -> nn.Module:
    """The attention module that a processor is handed: of the annotated class."""
    annotation = parameters[_GIVEN].annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    held = {item: value for item, value in vars(module).items() if inspect.isclass(value)}
    own = [
        value
        for value in held.values()
        if value.__module__ == module.__name__ and value.__name__.endswith("Attention")
    ]
    cls = held.get(name.strip("\"'"), next(iter(own), held.get("Attention")))
    if cls is None:
        raise MisuseError(f"no attention class for parameter attn of {setting.site.symbol}")
    attention: nn.Module = _construct(cls, setting)[0]
    draw_weights(attention.eval(), setting.generator)
    return attention


def _called(owner: Any) -> Callable[..., Any]:
    return owner.forward if isinstance(owner, nn.Module) else owner.__call__


def _parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def _width(owner: nn.Module, setting: Setting) -> int:
    """Last dim of the hidden states that a module takes."""
    own = [weight for weight in owner.parameters(recurse=False) if weight.dim() == 1]
    if setting.site.op == "npu_rms_norm" and own:
        return own[0].shape[0]
    linear = next((item for item in owner.modules() if isinstance(item, nn.Linear)), None)
    return setting.sizes.hidden if linear is None else linear.in_features
