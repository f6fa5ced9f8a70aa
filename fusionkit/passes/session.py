"""The listener of one compile: it keeps the graphs of each window, the matches, and on request the real inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx

from fusionkit.capture.aot import decomposition_table
from fusionkit.capture.graphs import CapturedGraph, GraphKey, copy_graph_module
from fusionkit.config import CompilationConfig
from fusionkit.passes.match_pass import PatternMatchPass
from fusionkit.passes.registering import PatternClass
from fusionkit.passes.site_match import SiteMatch


class CompileSession:
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


def match_pass_for(
    groups: Mapping[str, Sequence[PatternClass]], decompositions: str, device: str = "cpu"
) -> PatternMatchPass:
    """A match pass over `groups`, its patterns traced with the named decomposition table."""
    return PatternMatchPass(groups, decomposition_table(decompositions), device)
