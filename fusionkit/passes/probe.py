"""Counting the matches of a pattern in a window of a real compile, without rewriting anything."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.fx

from fusionkit.capture.aot import GraphListener, aot_backend, decomposition_table
from fusionkit.capture.capturing import compile_and_run
from fusionkit.capture.graphs import GraphKey, copy_graph_module
from fusionkit.config import WINDOWS, select_patterns
from fusionkit.encoding import Result
from fusionkit.errors import MisuseError
from fusionkit.npu.target import current_device, current_target, use_target
from fusionkit.passes.foreign_backend import Backend, WatchedBackend, foreign_code, resolve_backend
from fusionkit.passes.match_pass import PatternMatchPass
from fusionkit.passes.registering import PatternClass
from fusionkit.passes.registry import enabled_groups
from fusionkit.passes.site_match import SiteMatch, count_hits
from fusionkit.passes.trial import trial_groups
from fusionkit.subjects.build import Subject
from fusionkit.verdict import Verdict

SCHEMA = "fusionkit.probe/1"
KIT_BACKEND = "fusionkit"


@dataclass(frozen=True, slots=True)
class ProbeCause(Result):
    """Why a count is meaningless. `type`: stale_compile_cache, not_compiled or not_lowered."""

    type: str
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class ProbedGraph(Result):
    """One graph that was counted in. `level`: its origin: a window's name, "aot", "pattern pass" or "dynamo"."""

    index: int
    level: str
    nodes: int


@dataclass(frozen=True, slots=True)
class ProbeReport(Result, schema=SCHEMA, also=("verdict", "reason"), without=("matches",)):
    """The matches of the patterns in the graphs of one compile; `cause`: why the count is meaningless, else None."""

    subject: str
    target: str
    dtype: str
    backend: str
    window: str
    patterns: tuple[str, ...]
    graphs: tuple[ProbedGraph, ...]
    matches: tuple[SiteMatch, ...]
    cause: ProbeCause | None

    def hits(self) -> dict[str, int]:
        """Number of hits by pattern, 0 for a pattern without one."""
        return count_hits(self.patterns, self.matches)

    @property
    def verdict(self) -> Verdict:
        """INCONCLUSIVE with a cause, else PASS if every pattern hits and FAIL if one does not."""
        if self.cause is not None:
            return Verdict.INCONCLUSIVE
        return Verdict.PASS if all(self.hits().values()) else Verdict.FAIL

    @property
    def reason(self) -> str:
        """One line: the hits of each pattern, or the cause."""
        counted = ", ".join(f"{name} {count} hits" for name, count in self.hits().items())
        summary = f"{counted} in {len(self.graphs)} graph(s)"
        if self.cause is None:
            return summary
        return f"{self.cause.type}: {self.cause.what}" + (f"; in the rest: {summary}" if self.graphs else "")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return Result.to_dict(self) | {"patterns": {name: self._entry(name) for name in self.patterns}}

    def _entry(self, name: str) -> dict[str, Any]:
        own = [match for match in self.matches if match.pattern == name]
        return {
            "hits": self.hits()[name] if self.cause is None else None,
            "sites": [match.to_dict() for match in own if match.status == "hit"],
            "refused": [match.to_dict() for match in own if match.status != "hit"],
        }


def probe(
    subject: Subject,
    pattern: str | Path,
    *,
    backend: str | Backend = KIT_BACKEND,
    window: str = "before-freezing",
    decompositions: str = "none",
    train: bool = False,
    dynamic: Sequence[str] = (),
) -> ProbeReport:
    """Compile `subject` through `backend` and count `pattern` in the graphs, on copies.

    `pattern`: a kit name, or the path of a pattern file. `backend`: "fusionkit", `module:callable`, a name in torch's
    list of backends, or a callable (passes.foreign_backend.WatchedBackend says which graphs of a foreign backend are
    visible; it has the window before-freezing only). A pattern is traced with the decompositions of the graph that
    it is tried on. Each probe wraps the backend anew and removes the wrapper.
    Raises MisuseError for an unknown pattern, backend or window, and for what the model or a foreign backend raises.
    """
    use_target(current_target() or "cpu")
    if window not in WINDOWS:
        raise MisuseError(f"unknown window '{window}'; use one of: {', '.join(WINDOWS)}")
    path = Path(pattern)
    kit_or_file = (
        trial_groups(path) if path.suffix == ".py" else enabled_groups(select_patterns((str(pattern),)))
    )
    counter = _Counter(kit_or_file)
    probed: Backend
    if backend == KIT_BACKEND:
        listener = _Window(window, counter, decompositions)
        probed = aot_backend(listener, decompositions=decompositions, freezing=window == "after-freezing")
    elif window != "before-freezing":
        raise MisuseError("a foreign backend is probed in window before-freezing only; leave --window away")
    else:
        probed = WatchedBackend(resolve_backend(backend), counter.look)
    label = backend if isinstance(backend, str) else _name_of(backend)
    with contextlib.nullcontext() if backend == KIT_BACKEND else foreign_code(label, subject.name):
        compile_and_run(subject, probed, train=train, dynamic=dynamic)
    return ProbeReport(
        subject=subject.name,
        target=current_target() or "none",
        dtype=subject.dtype,
        backend=label,
        window=window,
        patterns=counter.names,
        graphs=tuple(counter.graphs),
        matches=tuple(counter.matches),
        cause=_cause(probed, counter),
    )


def _name_of(backend: Backend) -> str:
    return str(getattr(backend, "__qualname__", type(backend).__qualname__))


_NOT_COMPILED = ProbeCause(
    "not_compiled",
    "torch.compile handed no graph to the backend",
    "look at the graph breaks: `fusionkit capture` lists them",
)


def _cause(probed: Backend, counter: _Counter) -> ProbeCause | None:
    if not isinstance(probed, WatchedBackend):
        return None if counter.graphs else _NOT_COMPILED
    if not probed.received:
        return _NOT_COMPILED
    if probed.unseen:
        return ProbeCause(
            "stale_compile_cache",
            f"{probed.unseen} of {probed.received} graphs went by without being shown to the backend's compiler:"
            " a compile cache served them, patterns of an earlier compile included",
            "compile once with TORCHINDUCTOR_FORCE_DISABLE_CACHES=1, or empty the cache folder",
        )
    hit = any(match.status == "hit" for match in counter.matches)
    if not hit and all(graph.level == "dynamo" for graph in counter.graphs):
        return ProbeCause(
            "not_lowered",
            "the backend does not go through AOT autograd, or it served a graph from a cache of its own: what it"
            " receives is dynamo's graph of torch functions, where no pattern of aten ops matches",
            "probe the backend that it hands its graphs to, or empty its cache",
        )
    return None


class _Counter:
    """Counts patterns in copies of graphs, with one match pass for each decomposition table."""

    def __init__(self, groups: Mapping[str, Sequence[PatternClass]]) -> None:
        self._groups = groups
        self._passes: list[tuple[Mapping[Any, Any], PatternMatchPass]] = []
        self.names = tuple(groups)
        self.graphs: list[ProbedGraph] = []
        self.matches: list[SiteMatch] = []
        self._pass_for({})  # a pattern that cannot be registered raises before the model is compiled

    def look(self, level: str, module: torch.fx.GraphModule, table: Mapping[Any, Any]) -> None:
        """Count in a copy of one graph."""
        index = len(self.graphs)
        self.graphs.append(ProbedGraph(index, level, len(module.graph.nodes)))
        self.matches.extend(self._pass_for(table).apply(copy_graph_module(module), index))

    def _pass_for(self, table: Mapping[Any, Callable[..., Any]]) -> PatternMatchPass:
        for known, made in self._passes:
            if known == table:
                return made
        made = PatternMatchPass(self._groups, table, current_device(), rewrite=False)
        self._passes.append((table, made))
        return made


class _Window(GraphListener):
    """Listens to the kit's own backend and counts in one window."""

    def __init__(self, window: str, counter: _Counter, decompositions: str) -> None:
        self._window = window
        self._counter = counter
        self._table = decomposition_table(decompositions)

    def on_window(self, window: str, key: GraphKey, module: torch.fx.GraphModule) -> None:
        """Count in the graph if it has reached the wanted window."""
        del key
        if window == self._window:
            self._counter.look(window, module, self._table)
