"""Whether a repair does what it promises, counted and computed here and not by the repair itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from fusionkit.errors import FusionKitError
from fusionkit.match.matching import device_of
from fusionkit.match.site_calls import pattern_call
from fusionkit.passes.match_pass import match_pass_for
from fusionkit.passes.registering import PatternClass
from fusionkit.passes.site_match import SiteMatch
from fusionkit.pattern_files.pattern_file import read_pattern_file
from mismatches.case import Case
from mismatches.sites import clean_copy

# Operators whose pattern has one right form for the graph as it is. A graph that computes something else, a
# node that others use, a config or a replacement that is wrong have none.
REPAIRABLE = (
    "change_scalar",
    "change_dim",
    "change_size",
    "freeze_size",
    "swap_operands",
    "other_overload",
    "insert_cast",
    "widen",
    "change_cast",
    "drop_cast",
    "insert_node",
    "insert_before",
    "drop_node",
    "replace_node",
    "prims_cast",
    "prims_op",
    "decompose",
    "more_kwargs",
    "compute_twice",
    "burned_scalar",
    "composite",
    "default_table",
    "graph_copy",
)
NEAR = 0.02  # relative error in the L2 norm; bfloat16 keeps 8 bits


def try_repair(case: Case, asked: str | Path, folder: Path) -> tuple[bool | None, str]:
    """Repair a case; (None, "") for one that no repair is expected of."""
    if case.operator not in REPAIRABLE and case.operator != "double":
        return None, ""
    from fusionkit.match.repairing.repair import repair

    try:
        report = repair(case.capture, asked, config=case.config_in(folder))
        if not report.offered:
            return False, f"not offered: {report.reason}"
        path = folder / "repaired_pattern.py"
        report.write(path)
        classes = read_pattern_file(path).patterns
    except FusionKitError as error:
        return False, str(error)
    except (RuntimeError, LookupError, AssertionError, AttributeError, TypeError, ValueError) as error:
        return False, f"crash {type(error).__name__}: {error}"
    return _judged(case, classes)


def _judged(case: Case, classes: Sequence[PatternClass]) -> tuple[bool, str]:
    graphs = {graph.key.index: graph for graph in case.capture.in_window("before-freezing")}
    matcher = match_pass_for({"case": classes}, case.capture.decompositions, device_of(list(graphs.values())))
    hits = [
        match
        for index, graph in graphs.items()
        for match in matcher.apply(clean_copy(graph.module), index)
        if match.status == "hit"
    ]
    taken = {(hit.graph_index, name) for hit in hits for name in hit.nodes}
    whole = [s for s in case.sites if all((s.found.graph, name) in taken for name in s.found.roots)]
    if len(whole) < len(case.sites):
        return False, f"{len(whole)} of {len(case.sites)} sites after the repair"
    for hit in hits:
        error = _error(case, classes, hit)
        if not error < NEAR:
            return False, f"{hit.anchor}: relative error {error:.3g}"
    return True, f"{len(whole)} sites"


def _error(case: Case, classes: Sequence[PatternClass], hit: SiteMatch) -> float:
    """The replacement against the graph's own nodes, on random inputs of the site's shapes."""
    graph = next(g for g in case.capture.in_window("before-freezing") if g.key.index == hit.graph_index)
    variant = next(item for item in classes if item.name() == hit.variant)
    values = {node.name: node.meta.get("val") for node in graph.nodes}
    generator = torch.Generator().manual_seed(0)
    call = pattern_call(graph, hit, variant)
    drawn = {
        n: torch.randn(tuple(values[n].shape), generator=generator).to(values[n].dtype) for n in call.inputs
    }
    tensors = [drawn[node] for node in call.inputs]
    with torch.no_grad():
        new = call.replacement(*tensors)
        old = call.original_for(tensors)(*tensors)
    difference = (new.double() - old.double()).norm() / old.double().norm().clamp_min(1e-30)
    return float(difference)
