"""Linting a pattern file: first its text, then each pattern's trace, then the patterns of a group together."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree
from torch._inductor.pattern_matcher import PatternMatcherPass

from fusionkit import config
from fusionkit.errors import FusionKitError
from fusionkit.npu.target import current_device, current_target, use_target
from fusionkit.passes.graph_entries import register_entries
from fusionkit.passes.lint_ops import lint_ops
from fusionkit.passes.lint_tracing import example_arguments, line_of, lint_trace, trace_of
from fusionkit.passes.registering import PatternClass, name_of, raw_scalars, register_pattern
from fusionkit.passes.tracing import make_tracer
from fusionkit.pattern_files.checking import check_pattern_file
from fusionkit.pattern_files.lint_rules import Finding, LintReport, finding
from fusionkit.pattern_files.lint_syntax import lint_names, lint_syntax, unconfirmed_flags
from fusionkit.pattern_files.naming import names_of_file
from fusionkit.pattern_files.pattern_file import read_pattern_file

# MindIE-SD's flags, relative to its patterns folder (the misspelling is theirs).
_FOREIGN_FLAGS = Path("..") / "compiliation_config.py"


def lint_pattern_file(path: Path) -> LintReport:
    """Every finding of every rule of pattern_files.lint_rules.RULES in one pattern file, by line.

    The file is executed and its patterns are traced, on target cpu if this process has no target yet. The default
    of the file's flag is checked too: in config.FusionPatterns, and in the configuration of a MindIE-SD checkout
    that contains the file. Raises MisuseError when the file cannot be read, parsed or imported, or has no pattern.
    """
    check_pattern_file(path)
    text = path.read_text("utf-8")
    use_target(current_target() or "cpu")
    file = read_pattern_file(path)
    findings = [*lint_syntax(text), *lint_names(text, path.stem), *_flag_findings(path)]
    for group in file.groups.values():
        by_pattern = [(pattern, _lint_pattern(pattern)) for pattern in group]
        findings += [item for _, items in by_pattern for item in items]
        findings += _duplicates([pattern for pattern, items in by_pattern if not _errors(items)])
    for register in file.entries:
        try:
            register_entries(register, PatternMatcherPass(), lambda *_: False)
        except FusionKitError as error:
            findings.append(finding("not_registrable", line_of(register), str(error)))
    return LintReport(str(path), tuple(_once(findings)))


def _lint_pattern(pattern: PatternClass) -> list[Finding]:
    try:
        findings = [*lint_trace(pattern), *lint_ops(pattern, raw_scalars(pattern))]
        if not _errors(findings):
            into, trace = PatternMatcherPass(), make_tracer({})
            register_pattern(pattern, into, trace, lambda *_: False, current_device())
    except FusionKitError as error:
        findings = [finding("not_registrable", line_of(pattern.pattern), str(error))]
    return findings


def _errors(findings: Sequence[Finding]) -> list[Finding]:
    return [item for item in findings if item.severity == "error"]


def _flag_findings(path: Path) -> list[Finding]:
    """Findings on the default of the file's flag, in the kit's and in a neighbouring MindIE-SD configuration."""
    flag = names_of_file(path.stem).flag
    foreign = path.parent / _FOREIGN_FLAGS
    findings = []
    if flag in config.flag_names():
        findings += unconfirmed_flags(inspect.getsource(config), flag)
    if foreign.is_file():
        findings += unconfirmed_flags(foreign.read_text("utf-8"), flag)
    return [finding(item.rule, 0, item.what) for item in findings]


def _once(findings: Iterable[Finding]) -> list[Finding]:
    """The findings by line; one that several variants of a class share appears once."""
    kept: dict[tuple[str, int, str], Finding] = {}
    for item in sorted(findings, key=lambda item: (item.line, item.rule)):
        variant, _, detail = item.what.partition(": ")
        kept.setdefault((item.rule, item.line, detail or variant), item)
    return list(kept.values())


# A comparable form of a trace: each call's target and arguments, nodes as numbers, pattern arguments by first use.
Form = tuple[Any, ...]


def _duplicates(patterns: Sequence[PatternClass]) -> list[Finding]:
    """Findings for the variants of one group whose pattern equals an earlier one, which takes all their sites.

    Traces are equal if they make the same calls in the same order; names and order of the arguments do not matter.
    The finding is an error if the replacements differ, else a warning. There is none for equal replacements on
    inputs of other dtypes, which a factory makes on purpose. Variants that cannot be traced are skipped: another
    rule reports them.
    """
    first: dict[Form, tuple[PatternClass, Form, Form]] = {}
    findings = []
    for pattern in patterns:
        try:
            searched, replaced, dtypes = _forms(pattern)
        except FusionKitError:
            continue
        if searched not in first:
            first[searched] = pattern, replaced, dtypes
            continue
        earlier, other, inputs = first[searched]
        what = f"{name_of(pattern)}: pattern() equals that of {name_of(earlier)}"
        line = line_of(pattern.pattern)
        if replaced != other:
            what = f"{what}, but replacement() differs and is never used"
            findings.append(finding("duplicate", line, what))
        elif dtypes == inputs:
            findings.append(
                finding("duplicate", line, f"{what}, and so does replacement()", severity="warning")
            )
    return findings


def _forms(pattern: PatternClass) -> tuple[Form, Form, Form]:
    """The forms of pattern and replacement, and the dtypes of the inputs."""
    arguments = example_arguments(pattern, raw_scalars(pattern))
    rank: dict[str, int] = {}
    searched = _form(trace_of(pattern, "pattern", arguments), arguments, rank)
    replaced = _form(trace_of(pattern, "replacement", arguments), arguments, rank)
    tensors = (arguments[name] for name in rank if isinstance(arguments[name], torch.Tensor))
    return searched, replaced, tuple(tensor.dtype for tensor in tensors)


def _form(graph: torch.fx.Graph, arguments: Mapping[str, Any], rank: dict[str, int]) -> Form:
    """The calls and outputs of a trace in comparable form; `rank` numbers the arguments by first use, and grows."""
    names = dict(zip(graph.find_nodes(op="placeholder"), arguments, strict=False))
    scalars = {value: name for name, value in arguments.items() if not isinstance(value, torch.Tensor)}
    numbers: dict[torch.fx.Node, int] = {}

    def leaf(value: Any) -> Any:
        if isinstance(value, torch.fx.Node) and value in numbers:
            return "node", numbers[value]
        known: Mapping[Any, str] = names if isinstance(value, torch.fx.Node) else scalars
        name = known.get(value) if isinstance(value, torch.fx.Node | int | float) else None
        if name is None:
            return type(value).__name__, str(value)
        return "argument", rank.setdefault(name, len(rank))

    rows = []
    for node in graph.nodes:
        if node.op == "placeholder":
            continue
        leaves, tree = pytree.tree_flatten((node.args, node.kwargs))
        rows.append((node.op, str(node.target), tuple(leaf(value) for value in leaves), str(tree)))
        numbers[node] = len(numbers)
    return tuple(rows)
