"""The independent site count inside a capture, and the module paths that count and graph nodes share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from fusionkit.capture.graphs import Capture, CapturedGraph, copy_graph_module
from fusionkit.capture.sources import module_path
from fusionkit.errors import MisuseError
from fusionkit.subjects.site_counts import ExpectedCount, ExpectedSite


def with_counts(capture: Capture, model: nn.Module, counts: Mapping[str, ExpectedCount]) -> Capture:
    """The capture of `model` with its site count, the nodes renamed to the count's module paths."""
    return replace(by_first_path(capture, model), counts=dict(counts))


def by_first_path(capture: Capture, model: nn.Module) -> Capture:
    """The capture with each shared module's nodes under the first of its paths in `model`.

    A forward hook, and with it the site count, knows a module by its first path only.
    """
    first = first_paths(model)
    if not first:
        return capture
    return replace(capture, graphs=tuple(_renamed(graph, first) for graph in capture.graphs))


def first_paths(model: nn.Module) -> dict[str, str]:
    """Path -> first path of the same module, for modules that `model` has at several paths."""
    first: dict[int, str] = {}
    paths = {}
    for path, module in model.named_modules(remove_duplicate=False):
        known = first.setdefault(id(module), path)
        if known != path:
            paths[path] = known
    return paths


def _renamed(graph: CapturedGraph, first: Mapping[str, str]) -> CapturedGraph:
    module = copy_graph_module(graph.module)
    for node in module.graph.nodes:
        path = module_path(node)
        if path in first:
            stack = dict(node.meta["nn_module_stack"])
            key, (_, kind) = list(stack.items())[-1]
            node.meta["nn_module_stack"] = stack | {key: (first[path], kind)}
    return replace(graph, module=module)


def counts_dict(counts: Mapping[str, ExpectedCount]) -> dict[str, Any]:
    """The `sites` entry of a capsule: for each primitive its counted sites in call order, and the declared number.

    `sites` is null where no counter applies, `declared` where the subject's author declared no number.
    """
    return {
        name: {
            "declared": count.declared,
            "complete": count.complete,
            "sites": None
            if count.sites is None
            else [
                {"module": site.module, "source": site.source, "caller": site.caller} for site in count.sites
            ],
        }
        for name, count in counts.items()
    }


def read_counts(data: Any) -> dict[str, ExpectedCount]:
    """The inverse of `counts_dict`. Raises MisuseError naming the primitive whose entry cannot be used."""
    if not isinstance(data, dict):
        raise MisuseError(f"`sites` is a {type(data).__name__}, not a count per primitive; capture it again")
    return {name: _read_count(name, entry) for name, entry in data.items()}


def _read_count(name: str, entry: Any) -> ExpectedCount:
    try:
        declared, complete, places = entry["declared"], entry["complete"], entry["sites"]
        whole = declared is None or (type(declared) is int and declared >= 0)
        if not whole or not isinstance(complete, bool):
            raise TypeError(f"declared {declared!r}, complete {complete!r}")
        sites = None if places is None else tuple(_read_site(name, i, p) for i, p in enumerate(places))
    except (KeyError, TypeError, IndexError) as error:
        raise MisuseError(
            f"`sites` of {name} is damaged ({type(error).__name__}: {error}); capture it again"
        ) from error
    return ExpectedCount(name, sites, declared, complete)


def _read_site(name: str, ordinal: int, place: Any) -> ExpectedSite:
    module, source, caller = (place[key] for key in ("module", "source", "caller"))
    if not all(isinstance(word, str) for word in (module, source, caller)):
        raise TypeError(f"site {ordinal} is {place!r}")
    return ExpectedSite(name, module, source, caller, ordinal)
