"""Replay of each hit by itself: the graph's own nodes against the replacement, on the site's own inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from fusionkit.capture.graphs import CapturedGraph
from fusionkit.errors import MisuseError
from fusionkit.match.site_calls import SiteCall, pattern_call, site_call
from fusionkit.numeric.counterexample import Counterexample, Search
from fusionkit.numeric.layouts import size_literals
from fusionkit.numeric.replay import SiteReplay, replay_site
from fusionkit.passes.compiled import Compiled
from fusionkit.passes.registering import PatternClass
from fusionkit.passes.site_match import SiteMatch
from fusionkit.verdict import Verdict, combine


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The replays of all hits of a compile; INCONCLUSIVE without a hit."""

    sites: tuple[tuple[SiteMatch, SiteReplay], ...]
    verdict: Verdict
    reason: str

    @property
    def searches(self) -> tuple[tuple[str, Search], ...]:
        """Pattern and result of each counterexample search, one for sites of equal form."""
        distinct = {
            id(replay.search): (match.pattern, replay.search) for match, replay in self.sites if replay.search
        }
        return tuple(distinct.values())

    @property
    def counterexamples(self) -> tuple[tuple[str, Counterexample], ...]:
        """Pattern and counterexample of each site form that has one."""
        return tuple((name, search.counterexample) for name, search in self.searches if search.counterexample)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON: one entry per site; `search` is the index of the site's search."""
        number = {id(search): index for index, (_, search) in enumerate(self.searches)}
        return {
            "verdict": str(self.verdict),
            "reason": self.reason,
            "searches": [{"pattern": name, **search.to_dict()} for name, search in self.searches],
            "sites": [
                {
                    "pattern": match.pattern,
                    "anchor": match.anchor,
                    "module": match.module,
                    **replay.to_dict(),
                    "search": number.get(id(replay.search)),
                }
                for match, replay in self.sites
            ],
        }


def replay_hits(compiled: Compiled, *, seed: int = 0, train: bool = False) -> ReplayReport:
    """Replay every hit of a compile that kept its inputs (`keep_inputs=True`).

    Original: the matched nodes of the graph. Replacement: the pattern's own function. Both get the values that the
    site had in the run, then random ones (see numeric.replay), then those of a counterexample search, which sites of
    equal graph, literals, shapes, strides and dtypes share. `train`: gradients are compared too.
    """
    replays = []
    searches: dict[Any, Search | None] = {}
    for graph in compiled.before:
        matches = [m for m in compiled.matches if m.graph_index == graph.key.index and m.status == "hit"]
        if not matches:
            continue
        calls = {match.anchor: site_call(graph, match, compiled.groups[match.pattern]) for match in matches}
        read = [name for call in calls.values() for name in call.inputs]
        values = site_values(graph, compiled.session.inputs.get(graph.key.index), matches, read)
        for match in matches:
            call = calls[match.anchor]
            form = (match.pattern, match.variant, call.form, *(_layout(values[node]) for node in call.inputs))
            replay = _replay(call, values, seed=seed, train=train, search=searches.get(form))
            searches[form] = replay.search
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
    return _replay(pattern_call(graph, match, variant), values, seed=seed)


def _replay(call: SiteCall, values: Mapping[str, Any], **options: Any) -> SiteReplay:
    tensors = [values[node] for node in call.inputs]
    return replay_site(
        call.original_for(tensors),
        call.replacement,
        tensors,
        eps=call.eps,
        activations=call.activations,
        name=call.name,
        names=call.names,
        literals=size_literals(call.original.graph.nodes),
        **options,
    )


def _layout(value: Any) -> Any:
    """What two inputs of equal sites have in common."""
    return (value.dtype, value.shape, value.stride()) if isinstance(value, torch.Tensor) else value


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
