"""The baseline: torch's own debug output of the pattern matcher, read as well as it can be.

With TORCHINDUCTOR_PATTERN_MATCH_DEBUG=all, torch logs for every candidate root why its match failed. Each line is
turned into a cause type and a node; what it does not say stays open.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fusionkit.errors import FusionKitError
from fusionkit.passes.trial import trial_groups
from mismatches.case import Case
from mismatches.score import Explained, Outcome, Told
from mismatches.sites import torch_matches

_VARIABLE = "TORCHINDUCTOR_PATTERN_MATCH_DEBUG"
_LOGGER = "torch._inductor.pattern_matcher"
_ERRORS = (RuntimeError, KeyError, AssertionError, AttributeError, TypeError, ValueError, FusionKitError)


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, bool, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        args: Any = record.args
        if isinstance(args, tuple) and len(args) >= 4:
            specific = str(record.msg).startswith("Specific")
            self.lines.append((str(args[0]), specific, _text(args[2])))


def _text(failure: Any) -> str:
    try:
        return str(failure)
    except (IndexError, KeyError, ValueError, TypeError, AttributeError) as error:
        return f"unprintable: {error}"  # torch's own line cannot be printed for some constants


def read_debug_output(case: Case, path: Path) -> Outcome:
    """Run torch's matcher on the case with its debug output on, and read a cause for each dropped site."""
    graphs = case.capture.in_window(str((case.config or {}).get("window", "before-freezing")))
    with _debugging() as seen:
        try:
            classes = [item for group in trial_groups(path).values() for item in group] if case.files else []
            torch_matches(classes, graphs)
        except _ERRORS as error:
            return Outcome((), f"{type(error).__name__}: {error}")
    nodes = {node.name: node for graph in graphs for node in graph.nodes}
    return Outcome(tuple(_explained(item.site, seen.lines, nodes) for item in case.expected))


@contextmanager
def _debugging() -> Iterator[_Lines]:
    logger, handler, before = logging.getLogger(_LOGGER), _Lines(), os.environ.get(_VARIABLE)
    propagate = logger.propagate
    os.environ[_VARIABLE], logger.propagate = "all", False
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


def _explained(site: Any, lines: Sequence[tuple[str, bool, str]], nodes: dict[str, Any]) -> Explained:
    own = [(specific, text) for name, specific, text in lines if name == site.found.anchor]
    return Explained(site.found.anchor, site.module, (_read(own, nodes),))


def _read(lines: Sequence[tuple[bool, str]], nodes: dict[str, Any]) -> Told:
    """One line's type: the second stage's where there is one."""
    if not lines:
        return Told("root_not_indexed", "", "")
    specific = [text for is_specific, text in lines if is_specific]
    text = (specific or [text for _, text in lines])[-1]
    if text.startswith("Match("):
        return Told("extra_check" if specific else "retrace_error", "", "")
    name = re.search(r"(?:node=|constant_args: )(\w+)", text)
    node = name.group(1) if name else ""
    return Told(_kind(text, nodes.get(node)), "", node)


def _kind(text: str, node: Any) -> str:
    if text.startswith("multiple_users"):
        return "extra_user"
    if text.startswith("args_structure"):
        return "kwargs_structure"
    if text.startswith("repeated pattern"):
        return "shared_node"
    if text.startswith("kwarg mismatch"):
        return "argument_order"
    if text.startswith("constant_args"):
        return _literal(text, node)
    target = str(getattr(node, "target", ""))
    wanted = re.search(r"pattern=\w+\(([\w.]+)", text)
    op = wanted.group(1) if wanted else ""
    if "prims." in op or "prims." in target:
        return "decomposition"
    if op.rpartition(".")[0] and op.rpartition(".")[0] == target.rpartition(".")[0]:
        return "overload"
    return "dtype_path" if "_to_copy" in op or "_to_copy" in target else "missing_node"


def _literal(text: str, node: Any) -> str:
    target = str(getattr(node, "target", ""))
    if any(word in target for word in ("view", "expand", "slice", "split", "layer_norm")):
        return "dynamic_shape"
    if any(word in target for word in ("mean", "cat", "stack", "unsqueeze", "unbind", "sum")):
        return "dim_literal"
    return "scalar_literal" if re.search(r"\d", text) else "missing_node"
