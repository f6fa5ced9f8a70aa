"""A pattern file under trial: which fusion it stands for, told from the ops that its replacement calls."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from fusionkit.fusions import FUSIONS, fusion_of_op
from fusionkit.passes.graph_entries import FileGroup
from fusionkit.passes.registering import (
    PatternClass,
    argument_names,
    example_inputs,
    fake_like,
    name_of,
    scalars_of,
)
from fusionkit.passes.tracing import unlogged_retraces
from fusionkit.pattern_files.naming import names_of_file
from fusionkit.pattern_files.pattern_file import read_pattern_file
from fusionkit.pattern_files.time_limit import within_limits
from fusionkit.subjects.load import UserCode


class _Ops(TorchDispatchMode):
    """Collects the names of the ops that are called."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


def trial_groups(path: Path) -> dict[str, Sequence[PatternClass]]:
    """The file's pattern classes, grouped by the fusion they stand for, in the file's order.

    A class whose replacement calls no op of the table forms a group under its own name. A file with
    register_..._graph_entries gives one FileGroup more, under the fusion whose fused op it names, else under the
    file's own name; it comes first, or holds the classes of that fusion as well.
    """
    file = read_pattern_file(path)
    groups: dict[str, list[PatternClass]] = {}
    for pattern in file.patterns:
        groups.setdefault(fusion_of(pattern, path), []).append(pattern)
    if not file.entries:
        return dict(groups)
    name = _fusion_named_in(path)
    own = FileGroup(name, groups.pop(name, ()), file.entries)
    return {name: own, **groups}


def _fusion_named_in(path: Path) -> str:
    """The one fusion whose fused op the file's text calls by name, else the file's own name."""
    fusions = {op.name.partition("::")[2]: fusion_of_op(op.name) for row in FUSIONS for op in row.ops}
    tree = ast.parse(path.read_text("utf-8"))
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    named = {fusion for name in called if (fusion := fusions.get(name))}
    return named.pop() if len(named) == 1 else names_of_file(path.stem).name


def fusion_of(pattern: PatternClass, path: Path) -> str:
    """The fusion that a pattern is for. Raises MisuseError when its replacement does not run on its inputs."""
    scalars = scalars_of(pattern)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), _Ops() as ops:
        tensors = iter([fake_like(tensor, "cpu") for tensor in example_inputs(pattern)])
        arguments = [scalars[name] if name in scalars else next(tensors) for name in argument_names(pattern)]
        what = f"{path}: replacement of {name_of(pattern)}"
        with UserCode(f"{what} does not run on its inputs():"), unlogged_retraces(), within_limits(what):
            pattern.replacement(*arguments)
    return next((fusion for name in ops.names if (fusion := fusion_of_op(name))), name_of(pattern))
