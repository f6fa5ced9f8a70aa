"""Linting a pattern file: its text, then each pattern's trace."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path

from torch._inductor.pattern_matcher import PatternMatcherPass

from fusionkit import config
from fusionkit.errors import FusionKitError
from fusionkit.npu.target import current_device, current_target, use_target
from fusionkit.passes.graph_entries import register_entries
from fusionkit.passes.lint_duplicates import lint_duplicates
from fusionkit.passes.lint_ops import lint_ops
from fusionkit.passes.lint_tracing import line_of, lint_trace, raw_scalars
from fusionkit.passes.registering import PatternClass, register_pattern
from fusionkit.passes.tracing import make_tracer
from fusionkit.pattern_files.lint_names import lint_names
from fusionkit.pattern_files.lint_rules import Finding, LintReport, finding
from fusionkit.pattern_files.lint_syntax import lint_syntax, unconfirmed_flags
from fusionkit.pattern_files.naming import names_of_file
from fusionkit.pattern_files.pattern_file import check_pattern_file, read_pattern_file

# Where MindIE-SD keeps its flags, seen from a file of its patterns folder (its spelling is kept).
_FOREIGN_FLAGS = Path("..") / "compiliation_config.py"


def lint_pattern_file(path: Path) -> LintReport:
    """Every finding of every rule of patterns.lint_rules.RULES in one pattern file, by line.

    The file is executed and its patterns are traced, on target cpu where this process has no target yet. Also the
    default of the file's own flag is looked at: in config.FusionPatterns, and in the configuration of a checkout
    of MindIE-SD around the file. Raises MisuseError when the file cannot be read, parsed or imported, or holds
    no pattern.
    """
    check_pattern_file(path)
    text = path.read_text("utf-8")
    use_target(current_target() or "cpu")
    file = read_pattern_file(path)
    found = [*lint_syntax(text), *lint_names(text, path.stem), *_flag_findings(path)]
    for group in file.groups.values():
        told = [(pattern, _lint_pattern(pattern)) for pattern in group]
        found += [item for _, items in told for item in items]
        found += lint_duplicates([pattern for pattern, items in told if not items])
    for register in file.entries:
        try:
            register_entries(register, PatternMatcherPass(), lambda *_: False)
        except FusionKitError as error:
            found.append(finding("not_registrable", line_of(register), str(error)))
    return LintReport(str(path), tuple(_once(found)))


def _lint_pattern(pattern: PatternClass) -> list[Finding]:
    try:
        found = [*lint_trace(pattern), *lint_ops(pattern, raw_scalars(pattern))]
        if not found:
            with_table = make_tracer({})
            register_pattern(pattern, PatternMatcherPass(), with_table, lambda *_: False, current_device())
    except FusionKitError as error:
        found = [finding("not_registrable", line_of(pattern.pattern), str(error))]
    return found


def _flag_findings(path: Path) -> list[Finding]:
    """The flag of the file's fusion, where a configuration next to it names one."""
    flag = names_of_file(path.stem).flag
    foreign = path.parent / _FOREIGN_FLAGS
    found = []
    if flag in config.flag_names():
        found += unconfirmed_flags(inspect.getsource(config), flag)
    if foreign.is_file():
        found += unconfirmed_flags(foreign.read_text("utf-8"), flag)
    return [finding(item.rule, 0, item.what) for item in found]


def _once(found: Iterable[Finding]) -> list[Finding]:
    """By line; what several variants of one class have in common is told once."""
    kept: dict[tuple[str, int, str], Finding] = {}
    for item in sorted(found, key=lambda item: (item.line, item.rule)):
        variant, _, told = item.what.partition(": ")
        kept.setdefault((item.rule, item.line, told or variant), item)
    return list(kept.values())
