"""Write a pattern file from chosen sites of a graph, and count its hits by torch's matcher."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusionkit.capture.graphs import Capture, CapturedGraph
from fusionkit.encoding import Result
from fusionkit.errors import MisuseError
from fusionkit.fusions import fusion_of_op
from fusionkit.match.matching import match_groups
from fusionkit.match.repairing.copies import CopiesLeft, copies_left, kit_groups
from fusionkit.match.repairing.proof import Matched, groups_of_file
from fusionkit.match.repairing.region import Region, form_of, is_number, regions_like
from fusionkit.match.repairing.region_choice import module_chain, regions_of_lines, regions_of_names
from fusionkit.match.repairing.synthesis_ops import take_op
from fusionkit.match.repairing.synthesis_writing import WrittenForm, write_forms, write_group
from fusionkit.npu.target import current_target, use_target
from fusionkit.passes.registering import PatternClass
from fusionkit.pattern_files.naming import FusionNames
from fusionkit.store import write_text

SCHEMA = "fusionkit.synthesize/1"


@dataclass(frozen=True, slots=True)
class SynthesisReport(Result, schema=SCHEMA, without=("taken", "differs")):
    """`sites`: number of regions of the chosen forms; `hits`: number of them that the file matches.

    `besides`: number of matches elsewhere. `reason`: why the file misses a chosen site, "" if it misses none; a file
    with a reason is not written. `taken`: for each class the fused op of its replacement with the measured error, or
    None: then the replacement repeats the search part, for the user to rewrite. `differs`: for such a class how the
    nearest fused op differs, "" if none is near. `copies`: casts and copies against the kit's own pattern there.
    """

    name: str
    sites: int
    hits: int
    taken: tuple[tuple[str, str | None], ...]
    text: str
    besides: int = 0
    reason: str = ""
    differs: tuple[str, ...] = ()
    copies: CopiesLeft | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        taken = [
            {"class": cls, "taken": op, "differs": differs}
            for (cls, op), differs in zip(self.taken, self.differs, strict=True)
        ]
        return Result.to_dict(self) | {"replacements": taken}

    def write(self, out: Path) -> Path:
        """Write the file. Raises MisuseError when it misses a chosen site, or `out` exists."""
        if self.reason:
            raise MisuseError(f"{out}: not written, {self.reason}")
        if out.exists():
            raise MisuseError(f"{out}: exists already and is never overwritten; give another --out")
        return write_text(out, self.text)


def synthesize(
    capture: Capture,
    name: str,
    *,
    nodes: Sequence[str] = (),
    lines: str | None = None,
    window: str = "before-freezing",
) -> SynthesisReport:
    """Write a pattern file named `name` for the chosen `nodes`, or the model's source `lines` (`file.py:10-20`).

    It also covers every other site of the same form. Each form gives one class. A fused op becomes the replacement
    only if it is equal on target cpu (see synthesis_ops). Raises MisuseError unless exactly one of `nodes` and
    `lines` is given, for an unknown node, and for a size that no input explains.
    """
    use_target(current_target() or "cpu")
    if bool(nodes) == bool(lines):
        raise MisuseError("synthesize needs the sites: either --nodes a,b,c or --lines file.py:10-20")
    graphs = capture.in_window(window)
    if not graphs:
        raise MisuseError(f"subject {capture.subject}: no graph was captured in window {window}")
    names = FusionNames(name)
    chosen = _chosen(graphs, nodes, lines)
    forms, differs = _written_forms(_forms(graphs, chosen), names)
    text = write_group(forms, names, capture.subject)
    with tempfile.TemporaryDirectory() as folder:
        path = write_text(Path(folder) / names.file, text)
        matched = Matched(match_groups(capture, groups_of_file(path), window, tolerates=(MisuseError,)))
    regions = [region for form in forms for region in form.regions]
    taking = [hit for hit in _hits_of(regions, matched) if hit is not None]
    taken = tuple((form.cls, None if form.taken is None else str(form.taken)) for form in forms)
    besides = matched.count - len(set(taking))
    return SynthesisReport(
        name,
        len(regions),
        len(taking),
        taken,
        text,
        besides,
        _why_missed(chosen, matched),
        differs,
        copies_left(matched.matching, _known_groups(forms)),
    )


def _written_forms(
    forms: Sequence[Sequence[Region]], names: FusionNames
) -> tuple[list[WrittenForm], tuple[str, ...]]:
    """The classes of all forms, and for each how the nearest fused op differs."""
    written: list[WrittenForm] = []
    differs: list[str] = []
    for regions in forms:
        op, difference = take_op(regions[0])
        made = write_forms(regions, names, len(written) + 1, op)
        written += made
        differs += [difference] * len(made)
    return written, tuple(differs)


def _known_groups(forms: Sequence[WrittenForm]) -> dict[str, Sequence[PatternClass]]:
    """The kit's patterns of the fused ops that the file takes."""
    ops = (form.taken.bound.form.op for form in forms if form.taken is not None)
    fusions = (fusion_of_op(f"{space}::{op}") for op in ops for space in ("npu", "fusionkit"))
    return {key: group for name in fusions if name for key, group in kit_groups(name).items()}


def _hits_of(regions: Sequence[Region], matched: Matched) -> list[int | None]:
    """The number of the hit that covers each region, or None."""
    of_node = {node: number for number, nodes in enumerate(matched.nodes()) for node in nodes}
    covering = [{of_node.get(node) for node in region.nodes} for region in regions]
    return [numbers.pop() if len(numbers) == 1 else None for numbers in covering]


def _why_missed(chosen: Sequence[Region], matched: Matched) -> str:
    """Why the file misses a chosen site; "" if it misses none."""
    hits = _hits_of(chosen, matched)
    missed = [region for region, hit in zip(chosen, hits, strict=True) if hit is None]
    if not missed:
        return ""
    summary = f"it takes {len(chosen) - len(missed)} of {len(chosen)} chosen sites and misses '{missed[0].outputs[0].name}'"
    for reason in (*matched.unusable.values(), *matched.refused.values()):
        return f"{summary}: {reason}"
    if missed[0].leaks:
        return f"{summary}: inner node '{missed[0].leaks[0].name}' is used outside; choose its users as well"
    return f"{summary}; choose the nodes of one fusion from its inputs to its output"


def _chosen(graphs: Sequence[CapturedGraph], nodes: Sequence[str], lines: str | None) -> list[Region]:
    """The chosen sites of every graph that has them."""
    chosen: list[Region] = []
    problem: MisuseError | None = None
    for graph in graphs:
        try:
            chosen += regions_of_names(graph, nodes) if lines is None else regions_of_lines(graph, lines)
        except MisuseError as error:
            problem = problem or error
    if not chosen and problem is not None:
        raise problem
    for region in chosen:
        if not region.inputs:
            raise MisuseError(
                f"node '{region.outputs[0].name}': the chosen nodes take no tensor, so a pattern has no argument there;"
                " choose nodes that compute something from one"
            )
    return chosen


def _forms(graphs: Sequence[CapturedGraph], chosen: Sequence[Region]) -> list[list[Region]]:
    """The regions of each chosen form in the graphs, the chosen one first: it determines the argument names."""
    forms: dict[Any, list[Region]] = {}
    for region in chosen:
        if form_of(region) not in forms:
            same = regions_like(region, [graph.module.graph for graph in graphs])
            others = [item for item in same if not item.leaks and set(item.nodes) != set(region.nodes)]
            forms[form_of(region)] = [region, *others]
    return list(forms.values())


def draft_pattern(graph: CapturedGraph, anchor: str, *, model: str, op: str) -> str:
    """Source of a pattern file for the chain around node `anchor`, with a fused op as replacement if one is equal.

    The chain: the calls of the anchor's own module that it depends on or that depend on it (see module_chain). Their
    live-ins become arguments. Raises MisuseError for an unknown node.
    """
    use_target(current_target() or "cpu")
    by_name = {node.name: node for node in graph.nodes}
    if anchor not in by_name:
        raise MisuseError(f"node '{anchor}' is not in the graph; give a node name of the dump")
    names = FusionNames(f"{model}_{op}".replace("-", "_").lower())
    chain = module_chain(graph, by_name[anchor])
    outside = dict.fromkeys(o for node in chain for o in node.all_input_nodes if o not in set(chain))
    region = Region(tuple(node for node in outside if not is_number(node)), tuple(chain), (chain[-1],))
    return write_group(write_forms([region], names, 1, take_op(region)[0]), names, model)
