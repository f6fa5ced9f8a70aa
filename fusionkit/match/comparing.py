"""The differences between two captures of one model: by graph, op, device, dtype, site, and rewritten statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
import torch.fx

from fusionkit.capture.foreign import device_name
from fusionkit.capture.graphs import Capture, CapturedGraph
from fusionkit.capture.node_records import record_node, target_name
from fusionkit.capture.reading import read_capsule
from fusionkit.config import config_for_patterns
from fusionkit.errors import MisuseError
from fusionkit.match.graph_comparison import ABSENT, GraphComparison, GraphPair, Side, SitePair, Tally
from fusionkit.match.hits import default_patterns
from fusionkit.match.matching import match_subject
from fusionkit.match.rewrites import find_rewrites
from fusionkit.match.site_states import Key, SiteState, site_states, with_first_causes
from fusionkit.npu.target import current_target, use_target
from fusionkit.store import to_json


def compare_capsules(
    a: Path, b: Path, *, patterns: Sequence[str] | None = None, window: str = "before-freezing"
) -> GraphComparison:
    """Read two capsules and compare them (see `compare_captures`)."""
    use_target(current_target() or "cpu")
    return compare_captures(read_capsule(a), read_capsule(b), patterns=patterns, window=window)


def compare_captures(
    a: Capture, b: Capture, *, patterns: Sequence[str] | None = None, window: str = "before-freezing"
) -> GraphComparison:
    """Compare two captures of one model; nothing is compiled or run.

    `patterns`: names, or pattern files, whose sites are listed; default: those with a site count on either side, or all. Raises
    MisuseError when the captures are of different subjects, or one has no graph in `window`.
    """
    if a.subject != b.subject:
        raise MisuseError(
            f"A is of subject {a.subject}, B of subject {b.subject}; compare graphs of one model"
        )
    for letter, capture in (("A", a), ("B", b)):
        if not capture.in_window(window):
            raise MisuseError(f"{letter} has no graph in window {window}; capture it with --window {window}")
    use_target(current_target() or "cpu")
    sites, notes = _compare_sites(a, b, patterns, window)
    left, right = a.in_window(window), b.in_window(window)
    return GraphComparison(
        a=_side(a, window),
        b=_side(b, window),
        graphs=_pair_graphs(left, right),
        ops=_tallies(left, right, _op),
        devices=_tallies(left, right, _device),
        dtypes=_tallies(left, right, _dtype),
        sites=sites,
        rewrites=find_rewrites(left, right),
        notes=notes,
    )


def _compare_sites(
    a: Capture, b: Capture, patterns: Sequence[str] | None, window: str
) -> tuple[tuple[SitePair, ...], tuple[str, ...]]:
    names = tuple(patterns or default_patterns({**b.counts, **a.counts}))
    config = config_for_patterns(names, window=window)
    matching_a, matching_b = match_subject(a, config), match_subject(b, config)
    left = site_states(matching_a, {**b.counts, **a.counts})
    right = site_states(matching_b, {**a.counts, **b.counts})
    keys = list(dict.fromkeys([*left, *right]))
    differ = [key for key in keys if _state(left.get(key)) != _state(right.get(key))]
    left = with_first_causes(left, [key for key in differ if key in left], matching_a)
    right = with_first_causes(right, [key for key in differ if key in right], matching_b)
    return tuple(_pair(key, left.get(key), right.get(key)) for key in keys), _notes(a, b, names)


def _notes(a: Capture, b: Capture, names: Sequence[str]) -> tuple[str, ...]:
    """The captures' own notes, and which patterns use the other side's site count or have none at all."""
    notes = [f"{letter}: {note}" for letter, capture in (("A", a), ("B", b)) for note in capture.notes]
    for mine, theirs, own, other in (("A", "B", a, b), ("B", "A", b, a)):
        borrowed = [name for name in names if name not in own.counts and name in other.counts]
        if borrowed:
            notes.append(f"{mine} has no site count of {', '.join(borrowed)}: that of {theirs} is used")
    unknown = [name for name in names if name not in a.counts and name not in b.counts]
    if unknown:
        notes.append(f"no site count of {', '.join(unknown)} on either side: only matched sites are listed")
    return tuple(notes)


def _state(state: SiteState | None) -> str:
    return ABSENT if state is None else state.state


def _pair(key: Key, a: SiteState | None, b: SiteState | None) -> SitePair:
    pattern, module, _ = key
    sides = [(side, state) for side, state in (("A", a), ("B", b)) if state is not None]
    notes = [f"{side}: {state.note}" for side, state in sides if state.note]
    note = a.note if a is not None and b is not None and a.note == b.note else "; ".join(notes)
    return SitePair(pattern, module, sides[0][1].source, _state(a), _state(b), note)


def _side(capture: Capture, window: str) -> Side:
    return Side(
        subject=capture.subject,
        target=capture.target,
        dtype=capture.dtype,
        size=capture.size,
        seed=capture.seed,
        window=window,
        decompositions=capture.decompositions,
        torch=capture.torch_version,
        nodes=sum(len(graph.nodes) for graph in capture.in_window(window)),
    )


def _tallies(
    a: Sequence[CapturedGraph], b: Sequence[CapturedGraph], label_of: Callable[[torch.fx.Node], str | None]
) -> tuple[Tally, ...]:
    """The labels whose numbers of nodes differ, the largest difference first."""
    left, right = (
        Counter(label for graph in graphs for node in graph.nodes if (label := label_of(node)) is not None)
        for graphs in (a, b)
    )
    tallies = [Tally(key, left[key], right[key]) for key in {**left, **right} if left[key] != right[key]]
    return tuple(sorted(tallies, key=lambda tally: (-abs(tally.a - tally.b), tally.name)))


def _op(node: torch.fx.Node) -> str | None:
    return target_name(node.target) if node.op == "call_function" else node.op


def _device(node: torch.fx.Node) -> str | None:
    value = node.meta.get("val")
    return device_name(value.device) if isinstance(value, torch.Tensor) else None


def _dtype(node: torch.fx.Node) -> str | None:
    value = node.meta.get("val")
    return str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else None


def _pair_graphs(a: Sequence[CapturedGraph], b: Sequence[CapturedGraph]) -> tuple[GraphPair, ...]:
    """Pair the graphs by kind, in order."""
    kinds = dict.fromkeys(graph.key.kind for graph in (*a, *b))
    return tuple(
        _pair_of_graphs(kind, number, left, right)
        for kind in kinds
        for number, (left, right) in enumerate(
            zip_longest(*([graph for graph in graphs if graph.key.kind == kind] for graphs in (a, b)))
        )
    )


def _pair_of_graphs(kind: str, number: int, a: CapturedGraph | None, b: CapturedGraph | None) -> GraphPair:
    if a is None or b is None:
        only_a, only_b = (None if graph is None else len(graph.nodes) for graph in (a, b))
        return GraphPair(kind, number, only_a, only_b, same=False)
    left, right = _plain(a), _plain(b)
    difference = ""
    if [node["op"] for node in left] == [node["op"] for node in right]:
        pairs = zip(a.nodes, left, right, strict=True)
        difference = next((_field_text(node.name, old, new) for node, old, new in pairs if old != new), "")
    return GraphPair(kind, number, len(left), len(right), left == right, difference)


def _plain(graph: CapturedGraph) -> list[dict[str, Any]]:
    """Each node's op, arguments and metadata, with operand nodes as their position in the graph."""
    places = {node.name: place for place, node in enumerate(graph.nodes)}
    plain = []
    for node in graph.nodes:
        record = record_node(node)
        op = record.target if record.op == "call_function" else record.op
        arguments = _placed([record.args, record.kwargs], places)
        plain.append({"op": op, "arguments": arguments, "value": record.meta})
    return plain


def _placed(value: Any, places: dict[str, int]) -> Any:
    if isinstance(value, list):
        return [_placed(item, places) for item in value]
    if isinstance(value, dict):
        if list(value) == ["node"] and value["node"] in places:
            return {"node": places[value["node"]]}
        return {key: _placed(item, places) for key, item in value.items()}
    return value


def _field_text(name: str, a: dict[str, Any], b: dict[str, Any]) -> str:
    """The first field that differs, with both values."""
    field = next(key for key in ("arguments", "value") if a[key] != b[key])
    left, right = (to_json(side[field], indent=None) for side in (a, b))
    return f"{name} ({a['op']}): {field} {left} in A, {right} in B"
