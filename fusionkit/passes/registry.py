"""Stage two of registration: flag -> (pattern group, module that exports it)."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from fusionkit.config import FusionPatterns, flag_names
from fusionkit.errors import MisuseError
from fusionkit.fusion_rows import Pattern
from fusionkit.fusions import registrations
from fusionkit.patterns.pattern_base import PatternBase

# The order in which the fusions are tried: a longer chain comes before a shorter one that is part of it.
pattern_registry: dict[str, tuple[str, str]] = {
    "enable_rms_norm": ("RmsNormPatternGroup", "fusionkit.patterns"),
    "enable_rope": ("RopePatternGroup", "fusionkit.patterns"),
    "enable_swiglu": ("SwigluPatternGroup", "fusionkit.patterns"),
    "enable_ada_layer_norm": ("AdaLayerNormPatternGroup", "fusionkit.patterns"),
    "enable_gelu": ("GeluPatternGroup", "fusionkit.patterns"),
}


def enabled_groups(flags: FusionPatterns) -> dict[str, Sequence[type[PatternBase]]]:
    """Name of the row -> group, for each flag that is on.

    Raises MisuseError when a flag has no registry entry or no row.
    """
    groups: dict[str, Sequence[type[PatternBase]]] = {}
    names = {pattern.flag: name for name, pattern in registrations().items()}
    for flag in flag_names():
        if not getattr(flags, flag):
            continue
        if flag not in pattern_registry:
            raise MisuseError(f"flag {flag} has no entry in passes.pattern_registry; add one")
        if flag not in names:
            raise MisuseError(f"flag {flag} has no row in fusionkit/fusions.py; add one")
        group, module = pattern_registry[flag]
        groups[names[flag]] = getattr(importlib.import_module(module), group)
    return groups


def unreachable() -> list[str]:
    """One line for each disagreement of rows, flags, registry and exports; empty when every pattern is reachable."""
    problems = [f"flag {flag} has no registry entry" for flag in flag_names() if flag not in pattern_registry]
    for flag, (group, module_name) in pattern_registry.items():
        if flag not in flag_names():
            problems.append(f"registry entry {flag} has no flag in config.FusionPatterns")
        module = importlib.import_module(module_name)
        if group not in module.__all__ or not hasattr(module, group):
            problems.append(f"group {group} is not exported by {module_name}.__all__")
        elif not getattr(module, group):
            problems.append(f"group {group} is empty")
    for name, pattern in registrations().items():
        problems += _of_row(name, pattern)
    rows = [pattern.flag for pattern in registrations().values()]
    problems += [f"flag {flag} has no row in fusions" for flag in flag_names() if flag not in rows]
    problems += _order("config.FusionPatterns", flag_names(), rows)
    problems += _order("passes.pattern_registry", tuple(pattern_registry), rows)
    registered = {group for group, _ in pattern_registry.values()}
    problems += [
        f"group {name} is exported but not registered"
        for name in importlib.import_module("fusionkit.patterns").__all__
        if name.endswith("Group") and name not in registered
    ]
    return problems


def _of_row(name: str, pattern: Pattern) -> list[str]:
    """Where flags, registry and the module of the pattern differ from the row."""
    row, problems = f"row {name} of fusions", []
    if pattern.flag not in flag_names():
        problems.append(f"{row} has no flag {pattern.flag} in config.FusionPatterns")
    group, exporter = pattern_registry.get(pattern.flag, ("", "fusionkit.patterns"))
    if group != pattern.group:
        problems.append(f"{row} has the group {pattern.group}, its registry entry another")
    exported = getattr(importlib.import_module(exporter), pattern.group, ())
    others = sorted({cls.__module__ for cls in exported} - {pattern.module})
    if others:
        problems.append(f"{row} has the module {pattern.module}, its patterns are in {', '.join(others)}")
    return problems


def _order(place: str, flags: Sequence[str], rows: Sequence[str]) -> list[str]:
    """The first flag of `place` that stands out of the order of the rows; flags of one side only are left out."""
    wanted = [flag for flag in rows if flag in flags]
    actual = [flag for flag in flags if flag in rows]
    return [
        f"{place} has {flag} where the order of the rows of fusions has {row}"
        for flag, row in zip(actual, wanted, strict=True)
        if flag != row
    ][:1]
