"""The hits of pattern groups in a capture's graphs, and the numeric proof of each one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.fx

from fusionkit.encoding import Result
from fusionkit.errors import USER_CODE_ERRORS, MisuseError
from fusionkit.match.matching import Matching
from fusionkit.match.repairing.region import Region, form_of
from fusionkit.match.repairing.region_numbers import prove
from fusionkit.passes.graph_entries import FileGroup
from fusionkit.passes.registering import (
    PatternClass,
    activations_of,
    argument_names,
    name_of,
    replacement_of,
)
from fusionkit.passes.site_match import SiteMatch
from fusionkit.pattern_files.pattern_file import read_pattern_file
from fusionkit.verdict import Verdict

Candidate = tuple[Region, Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Hit(Result):
    """One hit. `verdict` and `reason`: of the numeric comparison; None and "" without one."""

    anchor: str
    module: str
    source: str
    graph: int
    variant: str
    verdict: Verdict | None
    reason: str


class Matched:
    """The hits of a matching. `refused`: variant -> why a match of it was not replaced."""

    def __init__(self, matching: Matching) -> None:
        self.matching = matching
        self.unusable = matching.unusable
        self.hits = [match for match in matching.matches if match.status == "hit"]
        self.refused = {
            match.variant: str(match.reason) for match in matching.matches if match.status != "hit"
        }
        self._graphs = {graph.key.index: graph for graph in matching.graphs}
        classes = [pattern for group in matching.groups.values() for pattern in group]
        self._by_name = {name_of(pattern): pattern for pattern in classes if pattern not in self.unusable}

    @property
    def count(self) -> int:
        """Number of hits."""
        return len(self.hits)

    def hits_of(self, pattern: PatternClass) -> int:
        """Number of hits of one class."""
        return sum(self._by_name.get(hit.variant) is pattern for hit in self.hits)

    def nodes(self) -> list[list[torch.fx.Node]]:
        """The nodes of each hit."""
        return [
            [node for node in self._graphs[hit.graph_index].nodes if node.name in set(hit.nodes)]
            for hit in self.hits
        ]

    def prove(
        self, seed: int, variants: set[str], entries: Mapping[torch.fx.Node, Candidate] | None = None
    ) -> list[Hit]:
        """Every hit, with the numeric comparison for the named variants; equal sites are compared once.

        `entries`: last node of a site -> its region and the replacement of the graph entry.
        """
        known: dict[Any, tuple[Verdict, str]] = {}
        hits = []
        for hit in self.hits:
            if hit.variant not in variants:
                hits.append(_hit_of(hit))
            elif hit.variant in self._by_name:
                hits.append(self._proven(hit, seed, known))
            else:
                hits.append(self._entry_proven(hit, seed, entries or {}))
        return hits

    def _entry_proven(self, hit: SiteMatch, seed: int, entries: Mapping[torch.fx.Node, Candidate]) -> Hit:
        graph = self._graphs[hit.graph_index].module.graph
        for node, (region, candidate) in entries.items():
            if node.graph is graph and node.name == hit.anchor:
                try:
                    replay = prove(region, candidate, seed=seed, name=f"{hit.variant}:{hit.anchor}")
                except USER_CODE_ERRORS as error:
                    return _hit_of(hit, Verdict.FAIL, f"the replacement raised {error}")
                return _hit_of(hit, replay.verdict, replay.reason)
        return _hit_of(hit, Verdict.INCONCLUSIVE, "the graph entry was not written from this site")

    def _proven(self, hit: SiteMatch, seed: int, known: dict[Any, tuple[Verdict, str]]) -> Hit:
        pattern = self._by_name[hit.variant]
        names = [name for name in argument_names(pattern) if isinstance(hit.arguments[name], dict)]
        literals = {name: value for name, value in hit.arguments.items() if name not in names}
        by_name = {node.name: node for node in self._graphs[hit.graph_index].nodes}
        region = _region_of(hit, [by_name[hit.arguments[name]["node"]] for name in names], by_name)
        key = (hit.variant, form_of(region), _numbers(region), str(literals))
        if key not in known:
            first = not any(other[:2] == key[:2] for other in known)
            known[key] = _compare(
                pattern, region, names, literals, seed, f"{hit.variant}:{hit.anchor}", in_float32=first
            )
        return _hit_of(hit, *known[key])


def groups_of_file(path: Path, *, with_entries: bool = False) -> dict[str, Sequence[PatternClass]]:
    """The `...PatternGroup` lists of a file; `with_entries` adds its graph entries as a first group.

    Raises MisuseError when it has neither.
    """
    file = read_pattern_file(path)
    groups: dict[str, Sequence[PatternClass]] = dict(file.groups)
    if file.entries and with_entries:
        return {"graph_entries": FileGroup("graph_entries", (), file.entries), **groups}
    if not groups:
        raise MisuseError(
            f"{path}: has graph entries only, which no repair can write anew; mend their handler"
        )
    return groups


def _region_of(hit: SiteMatch, inputs: list[torch.fx.Node], by_name: Mapping[str, torch.fx.Node]) -> Region:
    nodes = [node for name, node in by_name.items() if name in hit.nodes]
    inside = set(nodes)
    outputs = [node for node in nodes if not node.users or not inside.issuperset(node.users)]
    return Region(tuple(inputs), tuple(node for node in nodes if node not in inputs), tuple(outputs))


def _compare(
    pattern: PatternClass,
    region: Region,
    names: Sequence[str],
    literals: Mapping[str, Any],
    seed: int,
    name: str,
    *,
    in_float32: bool,
) -> tuple[Verdict, str]:
    eps = literals.get("eps")
    drawn = activations_of(pattern)
    values = zip(names, region.input_values, strict=True)
    try:
        replay = prove(
            region,
            replacement_of(pattern, names, literals),
            eps=float(eps) if isinstance(eps, int | float) else None,
            activations=[i for i, (own, x) in enumerate(values) if own in drawn and x.is_floating_point()],
            seed=seed,
            name=name,
            in_float32=in_float32,
        )
        return replay.verdict, replay.reason
    except MisuseError as error:
        return Verdict.INCONCLUSIVE, str(error)
    except USER_CODE_ERRORS as error:
        return Verdict.FAIL, f"the replacement raised {(str(error).splitlines() or ['?'])[0]}"


def _numbers(region: Region) -> tuple[Any, ...]:
    """The literals of a region, and the shapes, strides and dtypes of its inputs."""
    literals = [str([a for a in node.args if not isinstance(a, torch.fx.Node)]) for node in region.nodes]
    return (*literals, *((tuple(v.shape), v.stride(), v.dtype) for v in region.input_values))


def _hit_of(hit: SiteMatch, verdict: Verdict | None = None, reason: str = "") -> Hit:
    return Hit(hit.anchor, hit.module, hit.source, hit.graph_index, hit.variant, verdict, reason)
