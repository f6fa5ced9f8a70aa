"""The groups of a pattern file under trial; a pattern's fusion follows from the ops that its replacement calls."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fusionkit.fusions import FUSIONS, fusion_of_op
from fusionkit.passes.graph_entries import FileGroup
from fusionkit.passes.registering import (
    PatternClass,
    bind_arguments,
    example_inputs,
    fake_like,
    name_of,
)
from fusionkit.passes.tracing import CalledOps, unlogged_retraces
from fusionkit.pattern_files.naming import names_of_file
from fusionkit.pattern_files.pattern_file import read_pattern_file
from fusionkit.pattern_files.time_limit import within_limits
from fusionkit.subjects.load import UserCode


def trial_groups(path: Path) -> dict[str, Sequence[PatternClass]]:
    """The file's pattern classes, grouped by fusion, in the file's order.

    A class whose replacement calls no op of the table `fusions` forms a group under its own name. The graph entries
    of a file form a FileGroup under the fusion whose fused op the file's text names, else under the file's name; it
    comes first and includes the classes of that fusion.
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
    """The fusion of the fused ops that the file's text names, if it is only one, else the file's own name."""
    fusions = {op.name.partition("::")[2]: fusion_of_op(op.name) for row in FUSIONS for op in row.ops}
    tree = ast.parse(path.read_text("utf-8"))
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    named = {fusion for name in called if (fusion := fusions.get(name))}
    return named.pop() if len(named) == 1 else names_of_file(path.stem).name


def fusion_of(pattern: PatternClass, path: Path) -> str:
    """The fusion of a pattern, else its own name. Raises MisuseError when its replacement fails on its inputs()."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), CalledOps() as called:
        tensors = [fake_like(tensor, "cpu") for tensor in example_inputs(pattern)]
        arguments = bind_arguments(pattern, tensors)
        what = f"{path}: replacement of {name_of(pattern)}"
        with UserCode(f"{what} does not run on its inputs():"), unlogged_retraces(), within_limits(what):
            pattern.replacement(*arguments.values())
    fusions = (fusion_of_op(op._schema.name) for op in called.ops)
    return next((fusion for fusion in fusions if fusion), name_of(pattern))
