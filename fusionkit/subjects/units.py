"""Units: the smallest module around a site, with its inputs from the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from fusionkit.subjects.build import Subject
from fusionkit.subjects.site_counts import ExpectedSite


@dataclass(frozen=True, slots=True)
class Unit:
    """One module of a subject as a separate subject; `path` is its path in the model."""

    path: str
    subject: Subject


def extract_units(subject: Subject, sites: Sequence[ExpectedSite]) -> list[Unit]:
    """One unit for each distinct module class that contains the math of a site, in call order.

    If the math is in the caller of the counted module (a norm that its block scales and shifts), the unit is that
    caller. The inputs are copied from one forward of the model.
    """
    modules = dict(subject.model.named_modules())
    paths: dict[tuple[type, str], str] = {}
    for site in sites:
        path = _holder(site, modules)
        paths.setdefault((type(modules[path]), site.source), path)
    inputs = _inputs_of(subject, {path: modules[path] for path in paths.values()})
    units = []
    for path in dict.fromkeys(paths.values()):
        if path in inputs:
            args, kwargs = inputs[path]
            units.append(
                Unit(
                    path,
                    replace(subject, model=_Called(modules[path], len(args)), inputs=kwargs | _named(args)),
                )
            )
    return units


class _Called(nn.Module):
    """A wrapper that takes positional arguments by name, so that one mapping has all inputs."""

    def __init__(self, module: nn.Module, count: int) -> None:
        super().__init__()
        self.unit = module
        self.count = count

    def forward(self, **inputs: Any) -> Any:
        args = [inputs.pop(f"argument_{index}") for index in range(self.count)]
        return self.unit(*args, **inputs)


def _named(args: Sequence[Any]) -> dict[str, Any]:
    return {f"argument_{index}": value for index, value in enumerate(args)}


def _holder(site: ExpectedSite, modules: Mapping[str, nn.Module]) -> str:
    """Path of the module whose forward contains `site.source`: the counted module, or the nearest one around it."""
    path = site.module
    while path and not _holds(modules[path], site.source):
        path = path.rpartition(".")[0]
    return path if path or _holds(modules[""], site.source) else site.module


def _holds(module: nn.Module, source: str) -> bool:
    code = getattr(type(module).forward, "__code__", None)
    name, _, line = source.rpartition(":")
    if code is None or not str(code.co_filename).endswith(name):
        return False
    lines = [number for _, _, number in code.co_lines() if number is not None]
    return bool(lines) and min(lines) <= int(line) <= max(lines)


def _inputs_of(
    subject: Subject, wanted: Mapping[str, nn.Module]
) -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    """The arguments of the first call of each wanted module in one forward."""
    kept: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def keep(path: str) -> Any:
        def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            kept.setdefault(
                path, _pytree.tree_map_only(torch.Tensor, lambda x: x.detach().clone(), (args, kwargs))
            )

        return hook

    handles = [
        module.register_forward_pre_hook(keep(path), with_kwargs=True) for path, module in wanted.items()
    ]
    try:
        subject.run()
    finally:
        for handle in handles:
            handle.remove()
    return kept
