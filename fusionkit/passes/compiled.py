"""One subject compiled through the kit: its graphs before and after the patterns, matches and outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.fx

from fusionkit.capture.aot import GraphListener, aot_backend
from fusionkit.capture.capturing import CompileOutcome, capture_of, compile_and_run
from fusionkit.capture.counted import first_paths
from fusionkit.capture.graphs import Capture, CapturedGraph, GraphKey, copy_graph_module
from fusionkit.config import CompilationConfig
from fusionkit.npu.target import current_device
from fusionkit.passes.match_pass import match_pass_for
from fusionkit.passes.registering import PatternClass
from fusionkit.passes.registry import enabled_groups
from fusionkit.passes.site_match import SiteMatch
from fusionkit.passes.trial import trial_groups
from fusionkit.subjects.build import Subject


class CompileSession(GraphListener):
    """Listens to one backend instance and applies its patterns in the configured window.

    `before` and `after`: every graph in the configured window before and after the patterns; `windows`: every graph
    in every window, before the patterns. `inputs`: graph index -> the real tensors of its first call (only with
    `keep_inputs`; in placeholder order, cloned).
    """

    def __init__(
        self,
        config: CompilationConfig,
        groups: Mapping[str, Sequence[PatternClass]],
        *,
        device: str = "cpu",
        keep_inputs: bool = False,
    ) -> None:
        self.config = config
        self.windows: list[CapturedGraph] = []
        self.before: list[CapturedGraph] = []
        self.after: list[CapturedGraph] = []
        self.matches: list[SiteMatch] = []
        self.inputs: dict[int, list[Any]] = {}
        self._keep_inputs = keep_inputs
        self._pass = match_pass_for(groups, config.decompositions, device)

    def on_window(self, window: str, key: GraphKey, module: torch.fx.GraphModule) -> None:
        """Keep a copy of the graph; in the configured window, apply the patterns."""
        seen = CapturedGraph(key, window, copy_graph_module(module))
        self.windows.append(seen)
        if window != self.config.window:
            return
        self.before.append(seen)
        self.matches.extend(self._pass.apply(module, key.index))
        self.after.append(CapturedGraph(key, window, copy_graph_module(module)))

    def on_call(self, key: GraphKey, inputs: Sequence[Any]) -> None:
        """Keep the first call's inputs."""
        if self._keep_inputs and key.index not in self.inputs:
            self.inputs[key.index] = [
                value.detach().clone() if isinstance(value, torch.Tensor) else value for value in inputs
            ]

    @property
    def patterns(self) -> tuple[str, ...]:
        """Names of the groups in the order in which they are tried."""
        return self._pass.names


@dataclass(frozen=True, slots=True)
class Compiled:
    """A subject, its config and pattern groups, and the session and outcome of its compile."""

    subject: Subject
    config: CompilationConfig
    groups: Mapping[str, Sequence[PatternClass]]
    session: CompileSession
    outcome: CompileOutcome

    @property
    def matches(self) -> tuple[SiteMatch, ...]:
        """Every match of every graph, in graph order; a shared module has the first of its paths."""
        first = first_paths(self.subject.model)
        return tuple(
            replace(
                match,
                module=first.get(match.module, match.module),
                modules=tuple(first.get(path, path) for path in match.modules),
            )
            for match in self.session.matches
        )

    @property
    def before(self) -> tuple[CapturedGraph, ...]:
        """The graphs in the config's window before the patterns."""
        return tuple(self.session.before)

    @property
    def after(self) -> tuple[CapturedGraph, ...]:
        """The graphs in the config's window after the patterns."""
        return tuple(self.session.after)

    def capture(self, graphs: Sequence[CapturedGraph] | None = None) -> Capture:
        """These graphs (default: those before the patterns) as a capture, for a capsule."""
        chosen = self.before if graphs is None else graphs
        return capture_of(self.subject, chosen, self.outcome, self.config.decompositions)


def compile_subject(
    subject: Subject,
    config: CompilationConfig | None = None,
    *,
    keep_inputs: bool = False,
    train: bool = False,
    dynamic: Sequence[str] = (),
    has_run: bool = False,
    groups: Mapping[str, Sequence[PatternClass]] | None = None,
) -> Compiled:
    """Compile and run `subject` once through a fresh backend instance.

    `has_run`: the model has already run once in eager mode. `groups`: instead of those that the config enables.
    Raises MisuseError when no graph was captured, or a pattern file or pattern cannot be used.
    """
    config = config or CompilationConfig()
    groups = pattern_groups(config) if groups is None else groups
    session = CompileSession(config, groups, device=current_device(), keep_inputs=keep_inputs)
    backend = aot_backend(session, decompositions=config.decompositions, freezing=config.freezes)
    outcome = compile_and_run(subject, backend, train=train, dynamic=dynamic, has_run=has_run)
    compiled = Compiled(subject, config, groups, session, outcome)
    compiled.capture(session.windows)  # raises if there is no graph
    return compiled


def pattern_groups(config: CompilationConfig) -> dict[str, Sequence[PatternClass]]:
    """The pattern groups that a config enables; a pattern file's group replaces the kit's group of that fusion."""
    groups: dict[str, Sequence[PatternClass]] = dict(enabled_groups(config.fusion_patterns))
    for path in config.pattern_files:
        trials = trial_groups(Path(path))
        groups = trials | {key: value for key, value in groups.items() if key not in trials}
    return groups
