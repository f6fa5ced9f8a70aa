"""Regions by the user's choice: node names, or source lines of the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import torch.fx

from fusionkit.capture.graphs import CapturedGraph
from fusionkit.capture.sources import module_path
from fusionkit.errors import MisuseError
from fusionkit.match.repairing.region import Region, form_of, region_of_nodes
from fusionkit.subjects.source_paths import short_path

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def regions_of_names(graph: CapturedGraph, names: Sequence[str]) -> list[Region]:
    """The regions of the named nodes, one for each connected part, in graph order.

    Raises MisuseError for a name that the graph does not have, and if a path between parts of different forms leads
    through a node that was not named.
    """
    by_name = {node.name: node for node in graph.nodes}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise MisuseError(
            f"node '{unknown[0]}' is not in graph {graph.key.index}; give node names of `fusionkit capture`"
        )
    chosen = [by_name[name] for name in dict.fromkeys(names)]
    parts = _connected_parts(chosen)
    if len(parts) < 2:
        return [region_of_nodes(chosen)]
    regions = [region_of_nodes(part) for part in parts]
    if len({form_of(region) for region in regions}) > 1:
        whole = region_of_nodes(chosen)
        if len(_connected_parts(whole.nodes)) == 1:
            return [whole]
    return regions


def regions_of_lines(graph: CapturedGraph, lines: str) -> list[Region]:
    """One region for each execution of the source lines `file:first-last` (or `file:line`), in graph order.

    A node belongs to the lines if any frame of its recorded stack does. The nodes of one execution are connected,
    within one module or its submodules. Raises MisuseError when no node comes from these lines.
    """
    file, first, last = parse_lines(lines)
    chosen = [node for node in graph.nodes if node.op == "call_function" and _ran_at(node, file, first, last)]
    if not chosen:
        raise MisuseError(f"no node of graph {graph.key.index} comes from {lines}; see the sources in a dump")
    return [region_of_nodes(part) for part in _connected_parts(chosen, _one_module)]


def module_chain(graph: CapturedGraph, anchor: torch.fx.Node) -> list[torch.fx.Node]:
    """The calls of the anchor's module that the last call depending on the anchor depends on, in graph order."""
    module = module_path(anchor)
    own = [node for node in graph.nodes if node.op == "call_function" and module_path(node) == module]
    after = {anchor}
    for node in own:
        if any(operand in after for operand in node.all_input_nodes):
            after.add(node)
    ends = [node for node in own if node in after and not any(user in after for user in node.users)]
    before = {ends[0]}
    for node in reversed(own):
        if any(user in before for user in node.users):
            before.add(node)
    return [node for node in own if node in before]


def parse_lines(text: str) -> tuple[str, int, int]:
    """`file:10-20` as file, first and last line. Raises MisuseError for any other form."""
    match = re.fullmatch(r"(.+):(\d+)(?:-(\d+))?", text)
    if match is None or int(match[3] or match[2]) < int(match[2]):
        raise MisuseError(f"'{text}' is no line range; write file.py:10-20")
    return match[1], int(match[2]), int(match[3] or match[2])


def _ran_at(node: torch.fx.Node, file: str, first: int, last: int) -> bool:
    for name, line in _FRAME.findall(node.meta.get("stack_trace") or ""):
        path = short_path(name)
        if first <= int(line) <= last and (path == file or path.endswith(f"/{file}") or name == file):
            return True
    return False


def _connected_parts(
    chosen: Sequence[torch.fx.Node],
    joined_by: Callable[[torch.fx.Node, torch.fx.Node], bool] | None = None,
) -> list[list[torch.fx.Node]]:
    """The nodes in connected groups, by first node; `joined_by`: which edges connect, default all."""
    group = {node: {node} for node in chosen}
    for node in chosen:
        for operand in node.all_input_nodes:
            if operand not in group or group[operand] is group[node]:
                continue
            if joined_by is None or joined_by(node, operand):
                joined = group[operand] | group[node]
                for member in joined:
                    group[member] = joined
    parts = dict.fromkeys(id(group[node]) for node in chosen)
    return [[node for node in chosen if id(group[node]) == part] for part in parts]


def _one_module(a: torch.fx.Node, b: torch.fx.Node) -> bool:
    one, other = module_path(a), module_path(b)
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.") or "" in (one, other)
