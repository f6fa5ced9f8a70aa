"""A small configuration for a class: its annotated configuration class, or that of the classes that build it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from fusionkit.identify.proving.sizes import Sizes, make_small
from fusionkit.identify.source.configurations import annotated_configs
from fusionkit.identify.source.files import SourceFile

FORCED = {"_attn_implementation": "eager", "_experts_implementation": "eager"}
"""Attribute of a configuration -> implementation under which the code as written runs."""


def small_configs(module: ModuleType, source: SourceFile, name: str, sizes: Sizes) -> Iterator[Any]:
    """Small configurations that may fit the class or function `name`, the likeliest first."""
    for config_class in config_classes(module, source, name):
        try:
            config = config_class()
            make_small(config, sizes)
            force_eager(config)
        except (TypeError, ValueError, AttributeError, KeyError, ImportError, RuntimeError):
            continue
        yield config


def config_classes(module: ModuleType, source: SourceFile, name: str) -> list[type]:
    """Configuration classes, those annotated nearest to `name` first, then all that the module imports."""
    told = [config for level in annotated_configs(source, name) for config in level]
    told += [held for held in vars(module) if held.endswith("Config")]
    found = [vars(module).get(item) for item in dict.fromkeys(told)]
    return [item for item in found if inspect.isclass(item) and item.__name__ != "PreTrainedConfig"]


def force_eager(config: Any) -> None:
    """Choose the implementations that the file itself writes out."""
    for name, value in FORCED.items():
        if hasattr(config, name):
            setattr(config, name, value)
