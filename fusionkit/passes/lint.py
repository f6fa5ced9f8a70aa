"""Linting a pattern file: first its text, then each pattern's trace."""

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
        findings += lint_duplicates([pattern for pattern, items in by_pattern if not items])
    for register in file.entries:
        try:
            register_entries(register, PatternMatcherPass(), lambda *_: False)
        except FusionKitError as error:
            findings.append(finding("not_registrable", line_of(register), str(error)))
    return LintReport(str(path), tuple(_once(findings)))


def _lint_pattern(pattern: PatternClass) -> list[Finding]:
    try:
        findings = [*lint_trace(pattern), *lint_ops(pattern, raw_scalars(pattern))]
        if not findings:
            with_table = make_tracer({})
            register_pattern(pattern, PatternMatcherPass(), with_table, lambda *_: False, current_device())
    except FusionKitError as error:
        findings = [finding("not_registrable", line_of(pattern.pattern), str(error))]
    return findings


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
