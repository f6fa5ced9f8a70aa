"""fusionkit lint: check a pattern file before anything is compiled."""

from __future__ import annotations

import argparse
from pathlib import Path

from fusionkit.commands.command import Command, write_line, write_result
from fusionkit.commands.subject import add_target_option


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=_file, metavar="FILE.py", help="a pattern file")
    add_target_option(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _file(text: str) -> Path:
    from fusionkit.pattern_files.checking import check_pattern_file

    check_pattern_file(Path(text))
    return Path(text)


def _lint(arguments: argparse.Namespace) -> int:
    from fusionkit.npu.target import use_target
    from fusionkit.passes.lint import lint_pattern_file

    use_target(arguments.target)
    report = lint_pattern_file(arguments.file)
    if arguments.json:
        write_result(report.to_dict())
        return 1 if report.errors else 0
    for item in report.findings:
        write_line(f"{report.path}:{item.line}: {item.severity} {item.rule}: {item.what}; {item.way_out}")
    warnings = len(report.findings) - len(report.errors)
    write_line(f"{report.path}: {len(report.errors)} error(s), {warnings} warning(s)")
    return 1 if report.errors else 0


LINT = Command(
    "lint",
    "check a pattern file: what would make it miss, break, or go by several names",
    "fusionkit lint my_rms_norm_pattern.py",
    _configure,
    _lint,
)
