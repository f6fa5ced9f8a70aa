"""Norms whose fused form stands where they are called: nn.RMSNorm modules, and norms that a helper method computes."""

from __future__ import annotations

from fusionkit.identify.replacing.library_norms import calls_of_norms
from fusionkit.identify.replacing.norms import calls_of_helper
from fusionkit.identify.replacing.replacement import Change
from fusionkit.identify.replacing.statements import Statements
from fusionkit.identify.rules.unit import Unit


def calls_of_class(unit: Unit, statements: Statements, symbol: str) -> list[Change]:
    """The changes in one method for the norms of the site `symbol` that it calls."""
    name, _, helper = symbol.partition(".")
    if not helper:
        cls = unit.file.classes.get(name)
        return [] if cls is None else calls_of_norms(unit, statements, cls)
    if (
        unit.cls is None
        or unit.cls.name != name
        or unit.node.name != "forward"
        or helper not in unit.cls.methods
    ):
        return []
    return calls_of_helper(unit, statements, unit.cls.methods[helper])
