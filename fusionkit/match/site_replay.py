"""Replay of each hit by itself: the graph's own nodes against the replacement, on the site's own inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_leaves

from fusionkit.capture.graphs import CapturedGraph
from fusionkit.errors import MisuseError
from fusionkit.match.entry_replay import as_function, entry_site, is_entry
from fusionkit.numeric.replay import SiteReplay, replay_site
from fusionkit.passes.admission import cast_dtype
from fusionkit.passes.compiled import Compiled
from fusionkit.passes.graph_entries import FileGroup
from fusionkit.passes.registering import PatternClass, activations_of, argument_names, replacement_of
from fusionkit.passes.site_match import SiteMatch
from fusionkit.verdict import Verdict, combine


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The replays of all hits of a compile; INCONCLUSIVE without a hit."""

    sites: tuple[tuple[SiteMatch, SiteReplay], ...]
    verdict: Verdict
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON: one entry per site."""
        return {
            "verdict": str(self.verdict),
            "reason": self.reason,
            "sites": [
                {"pattern": match.pattern, "anchor": match.anchor, "module": match.module, **replay.to_dict()}
                for match, replay in self.sites
            ],
        }


def replay_hits(compiled: Compiled, *, seed: int = 0) -> ReplayReport:
    """Replay every hit of a compile that kept its inputs (`keep_inputs=True`).

    Original: the matched nodes of the graph. Replacement: the pattern's own function. Both get the values that the
    site had in the run, then random ones (see numeric.replay).
    """
    replays = []
    for graph in compiled.before:
        matches = [m for m in compiled.matches if m.graph_index == graph.key.index and m.status == "hit"]
        if not matches:
            continue
        entries = {
            match.anchor: entry_site(graph, match, group)
            for match in matches
            if isinstance(group := compiled.groups[match.pattern], FileGroup)
            and is_entry(group, match.variant)
        }
        read = [name for site in entries.values() for name in site.inputs]
        values = site_values(graph, compiled.session.inputs.get(graph.key.index), matches, read)
        for match in matches:
            if match.anchor in entries:
                site, name = entries[match.anchor], f"{match.pattern}:{match.anchor}"
                tensors = [values[node] for node in site.inputs]
                replay = replay_site(site.original, site.replacement, tensors, seed=seed, name=name)
            else:
                group = compiled.groups[match.pattern]
                variant = next(pattern for pattern in group if pattern.name() == match.variant)
                replay = replay_match(graph, match, variant, values, seed=seed)
            replays.append((match, replay))
    return ReplayReport(tuple(replays), *_overall(replays))


def replay_match(
    graph: CapturedGraph,
    match: SiteMatch,
    variant: PatternClass,
    values: Mapping[str, Any],
    *,
    seed: int = 0,
) -> SiteReplay:
    """Replay one site; `values`: name of an input node -> its tensor in a real run."""
    names = [name for name in argument_names(variant) if isinstance(match.arguments[name], dict)]
    nodes = [match.arguments[name]["node"] for name in names]
    literals = {name: value for name, value in match.arguments.items() if not isinstance(value, dict)}
    drawn = activations_of(variant)
    replacement = replacement_of(variant, names, literals)
    eps = literals.get("eps")
    tensors = [values[node] for node in nodes]
    with torch.no_grad():
        made = [leaf for leaf in tree_leaves(replacement(*tensors)) if isinstance(leaf, torch.Tensor)]
    return replay_site(
        extract_site(graph, match, nodes, made[0].dtype if made else None),
        replacement,
        tensors,
        eps=float(eps) if isinstance(eps, int | float) else None,
        seed=seed,
        activations=[index for index, name in enumerate(names) if name in drawn],
        name=f"{match.pattern}:{match.anchor}",
    )


def extract_site(
    graph: CapturedGraph, match: SiteMatch, inputs: Sequence[str], dtype: torch.dtype | None
) -> Callable[..., Any]:
    """The matched nodes as a function of the site's input nodes, in the order of `inputs`.

    `dtype`: the replacement's. If all users of the chain cast its result to it, that cast is part of the site.
    """
    names = list(dict.fromkeys(inputs))
    nodes = [node for node in graph.nodes if node.name in match.nodes and node.name not in names]
    (root,) = [node for node in nodes if node.name == match.anchor]
    module = as_function(graph.module, nodes, names, root)
    cast = dtype is not None and bool(root.users) and all(cast_dtype(user) == dtype for user in root.users)

    def original(*tensors: torch.Tensor) -> Any:
        values = dict(zip(inputs, tensors, strict=True))
        result = module(*(values[name] for name in names))
        return torch.ops.aten._to_copy.default(result, dtype=dtype) if cast else result

    return original


def site_values(
    graph: CapturedGraph,
    inputs: Sequence[Any] | None,
    matches: Sequence[SiteMatch],
    names: Sequence[str] = (),
) -> dict[str, Any]:
    """Run the graph on real `inputs`; the values of the matches' argument nodes and of the nodes `names`.

    Raises MisuseError when the compile kept no inputs.
    """
    if inputs is None:
        raise MisuseError(f"graph {graph.key.index} kept no inputs; compile with keep_inputs=True")
    wanted = {
        value["node"] for match in matches for value in match.arguments.values() if isinstance(value, dict)
    } | set(names)
    values: dict[str, Any] = {}

    def keep(node: torch.fx.Node, value: Any) -> Any:
        if node.name in wanted:
            values[node.name] = value
        return value

    run_graph(graph.module, inputs, keep)
    return values


def run_graph(
    module: torch.fx.GraphModule, inputs: Sequence[Any], change: Callable[[torch.fx.Node, Any], Any]
) -> Any:
    """Run a graph without gradients; each node gives what `change` makes of it and its value."""

    class Interpreter(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            return change(n, super().run_node(n))

    with torch.no_grad():
        return Interpreter(module).run(*inputs)


def _overall(replays: Sequence[tuple[SiteMatch, SiteReplay]]) -> tuple[Verdict, str]:
    verdict = combine(replay.verdict for _, replay in replays)
    if not replays:
        return verdict, "no hit, so nothing was replayed"
    bad = [(match, replay) for match, replay in replays if replay.verdict is not Verdict.PASS]
    if bad:
        match, replay = bad[0]
        return (
            verdict,
            f"{len(bad)} of {len(replays)} sites: {match.pattern} at {match.module}: {replay.reason}",
        )
    return verdict, f"{len(replays)} sites replayed, each within tolerance"
