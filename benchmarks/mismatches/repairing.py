"""Whether a repair does what it promises, counted and computed here and not by the repair itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.errors import FusionKitError
from fusionkit.fusions import pattern_names
from fusionkit.match.matching import device_of
from fusionkit.match.site_calls import pattern_call
from fusionkit.numeric.layouts import size_literals
from fusionkit.numeric.search import search_counterexample
from fusionkit.passes.compiled import pattern_groups
from fusionkit.passes.match_pass import match_pass_for
from fusionkit.passes.registering import PatternClass
from fusionkit.passes.site_match import SiteMatch
from fusionkit.passes.trial import fusion_of
from fusionkit.pattern_files.pattern_file import read_pattern_file
from fusionkit.verdict import Verdict
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
COPIES = ("aten._to_copy", "aten.clone", "aten.copy", "prims.convert_element_type", "npu._npu_dtype_cast")
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
    hits, graphs = _matched(case, classes)
    taken = {(hit.graph_index, name) for hit in hits for name in hit.nodes}
    whole = [s for s in case.sites if all((s.found.graph, name) in taken for name in s.found.roots)]
    if len(whole) < len(case.sites):
        return False, f"{len(whole)} of {len(case.sites)} sites after the repair"
    forms: set[Any] = set()
    for hit in hits:
        wrong = _difference(case, classes, hit, forms)
        if wrong:
            return False, f"{hit.anchor}: {wrong}"
    more = _more_copies(case, classes, len(hits), graphs)
    if more > 0:
        return False, f"{more} more casts and copies than with the kit's pattern"
    return True, f"{len(whole)} sites"


def _matched(
    case: Case, classes: Sequence[PatternClass]
) -> tuple[list[SiteMatch], list[torch.fx.GraphModule]]:
    """The hits, and the rewritten graphs."""
    graphs = {graph.key.index: graph for graph in case.capture.in_window("before-freezing")}
    matcher = match_pass_for({"case": classes}, case.capture.decompositions, device_of(list(graphs.values())))
    copies = {index: clean_copy(graph.module) for index, graph in graphs.items()}
    matches = [match for index, module in copies.items() for match in matcher.apply(module, index)]
    return [match for match in matches if match.status == "hit"], list(copies.values())


def _more_copies(
    case: Case, classes: Sequence[PatternClass], hits: int, graphs: Sequence[torch.fx.GraphModule]
) -> int:
    """Casts and copies beyond those that the kit's own pattern leaves; 0 where it does not hit as often."""
    fusion = fusion_of(classes[0], Path("case_pattern.py"))
    if fusion not in pattern_names():
        return 0
    (group,) = pattern_groups(CompilationConfig(fusion_patterns=select_patterns((fusion,)))).values()
    own, rewritten = _matched(case, group)
    if len(own) != hits:
        return 0
    return _copies(graphs) - _copies(rewritten)


def _copies(graphs: Sequence[torch.fx.GraphModule]) -> int:
    return sum(str(node.target).startswith(COPIES) for graph in graphs for node in graph.graph.nodes)


def _difference(case: Case, classes: Sequence[PatternClass], hit: SiteMatch, forms: set[Any]) -> str:
    """How the replacement differs from the graph's own nodes: on random inputs, and by a counterexample search.

    Sites whose form is in `forms` are not searched again. "" without a difference.
    """
    graph = next(g for g in case.capture.in_window("before-freezing") if g.key.index == hit.graph_index)
    variant = next(item for item in classes if item.name() == hit.variant)
    values = {node.name: node.meta.get("val") for node in graph.nodes}
    generator = torch.Generator().manual_seed(0)
    call = pattern_call(graph, hit, variant)
    drawn = {
        n: torch.randn(tuple(values[n].shape), generator=generator).to(values[n].dtype) for n in call.inputs
    }
    tensors = [drawn[node] for node in call.inputs]
    original = call.original_for(tensors)
    with torch.no_grad():
        new, old = call.replacement(*tensors), original(*tensors)
    error = float((new.double() - old.double()).norm() / old.double().norm().clamp_min(1e-30))
    if not error < NEAR:
        return f"relative error {error:.3g}"
    form = (hit.variant, call.form, *(tensor.shape for tensor in tensors))
    if form in forms:
        return ""
    forms.add(form)
    literals = size_literals(call.original.graph.nodes)
    search = search_counterexample(original, call.replacement, tensors, seed=1, literals=literals)
    return search.reason if search.verdict is Verdict.FAIL else ""
