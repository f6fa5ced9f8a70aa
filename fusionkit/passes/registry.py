"""Stage two of registration: flag -> (pattern group, module that exports it)."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from fusionkit.config import FusionPatterns, flag_names
from fusionkit.errors import MisuseError
from fusionkit.fusions import FUSIONS
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
    """Name (flag without `enable_`) -> group, for each flag that is on.

    Raises MisuseError when a flag has no registry entry, or its group is not exported.
    """
    groups: dict[str, Sequence[type[PatternBase]]] = {}
    for flag in flag_names():
        if not getattr(flags, flag):
            continue
        if flag not in pattern_registry:
            raise MisuseError(f"flag {flag} has no entry in passes.pattern_registry; add one")
        group, module = pattern_registry[flag]
        groups[flag.removeprefix("enable_")] = getattr(importlib.import_module(module), group)
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
    for row in FUSIONS:
        if row.pattern is None:
            continue
        if row.pattern.flag not in flag_names():
            problems.append(
                f"row {row.name} of fusions has no flag {row.pattern.flag} in config.FusionPatterns"
            )
        if pattern_registry.get(row.pattern.flag, ("", ""))[0] != row.pattern.group:
            problems.append(
                f"row {row.name} of fusions has the group {row.pattern.group}, its registry entry another"
            )
    rows = {row.pattern.flag for row in FUSIONS if row.pattern is not None}
    problems.extend(f"flag {flag} has no row in fusions" for flag in flag_names() if flag not in rows)
    exported = importlib.import_module("fusionkit.patterns").__all__
    registered = {group for group, _ in pattern_registry.values()}
    problems.extend(
        f"group {name} is exported but not registered"
        for name in exported
        if name.endswith("Group") and name not in registered
    )
    return problems
