"""The torch.compile backend `fusionkit`, registered through torch's entry points for use in any script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.fx

from fusionkit.capture.aot import CompiledFunction, aot_backend
from fusionkit.capture.capsule import write_capsule
from fusionkit.capture.graphs import Capture, CapturedGraph, GraphKey
from fusionkit.config import CompilationConfig, config_from_options
from fusionkit.npu.target import current_device, current_target, use_target
from fusionkit.passes.compiled import CompileSession, pattern_groups
from fusionkit.passes.site_match import SiteMatch, count_hits


class FusionBackend:
    """A backend instance with its own config, patterns and matches: `torch.compile(m, backend=FusionBackend(...))`.

    With `config.capsule` the graphs are written there after each compile.
    """

    def __init__(self, config: CompilationConfig | None = None) -> None:
        use_target(current_target() or "cpu")
        self.config = config or CompilationConfig()
        self._session = _WritingSession(self.config)
        self._backend = aot_backend(
            self._session, decompositions=self.config.decompositions, freezing=self.config.freezes
        )

    def __call__(self, module: torch.fx.GraphModule, example_inputs: list[Any], **_: Any) -> CompiledFunction:
        """Compile one graph; torch.compile calls this."""
        return self._backend(module, example_inputs)

    @property
    def matches(self) -> tuple[SiteMatch, ...]:
        """Every match of every graph compiled so far."""
        return tuple(self._session.matches)

    @property
    def graphs(self) -> tuple[CapturedGraph, ...]:
        """Every graph compiled so far, before the patterns."""
        return tuple(self._session.before)

    def hits(self) -> dict[str, int]:
        """Number of hits so far by pattern, 0 for an enabled pattern without a hit."""
        return count_hits(self._session.patterns, self.matches)


class _WritingSession(CompileSession):
    """A session that writes its capsule whenever a graph is complete."""

    def __init__(self, config: CompilationConfig) -> None:
        super().__init__(config, pattern_groups(config), device=current_device())

    def on_window(self, window: str, key: GraphKey, module: torch.fx.GraphModule) -> None:
        super().on_window(window, key, module)
        if self.config.capsule is None:
            return
        capture = Capture(
            subject="script",
            target=current_target() or "none",
            dtype="mixed",
            size="own",
            seed=0,
            graphs=tuple(self.windows),
            decompositions=self.config.decompositions,
        )
        write_capsule(capture, Path(self.config.capsule))


_BACKEND_KEY = "_fusionkit_backend"


def fusionkit(
    module: torch.fx.GraphModule,
    example_inputs: list[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
) -> CompiledFunction:
    """`torch.compile(model, backend="fusionkit", options={...})`; the options are those of CompilationConfig.

    torch calls this once per graph. The backend instance is stored in the caller's own `options` dict, so that the
    graphs of one compile share an instance and other compiles do not; changed options start a new instance.
    `mode` is ignored.
    """
    del mode
    if options is None:
        return FusionBackend()(module, example_inputs)
    config = config_from_options({key: value for key, value in options.items() if key != _BACKEND_KEY})
    backend = options.get(_BACKEND_KEY)
    if not isinstance(backend, FusionBackend) or backend.config != config:
        backend = options[_BACKEND_KEY] = FusionBackend(config)
    return backend(module, example_inputs)
