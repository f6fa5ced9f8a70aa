"""fusionkit hits and fusionkit explain: which sites a pattern takes, and why it misses the others."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusionkit.commands.command import Command, write_line, write_result
from fusionkit.commands.subject import (
    add_graph_options,
    add_subject_options,
    make_matching,
    names_of,
    told,
)
from fusionkit.errors import MisuseError
from fusionkit.verdict import Verdict

if TYPE_CHECKING:
    from fusionkit.match.hits import HitReport
    from fusionkit.match.missing import ExplainReport


def _configure_hits(parser: argparse.ArgumentParser) -> None:
    add_subject_options(parser)
    add_graph_options(parser)
    parser.add_argument(
        "--patterns", metavar="A,B", help="default: those whose sites are counted for the subject"
    )
    parser.add_argument("--all", action="store_true", help="every pattern of the kit")
    parser.add_argument("--pattern-file", metavar="FILE.py", help="a pattern file, tried first")
    parser.add_argument(
        "--check", type=Path, metavar="LOCK.json", help="a saved hits JSON that must be met again"
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 when a pattern is INCONCLUSIVE")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _hits(arguments: argparse.Namespace) -> int:
    from fusionkit.config import pattern_names
    from fusionkit.match.hits import report_hits

    names = pattern_names() if arguments.all else names_of(arguments.patterns)
    files = () if arguments.pattern_file is None else (arguments.pattern_file,)
    lock = None if arguments.check is None else _read_lock(arguments.check)
    matching, counts = make_matching(arguments, names, files)
    report = report_hits(matching, counts)
    if arguments.json:
        write_result(report.to_dict())
    else:
        _print_hits(report)
    changed = [] if lock is None else _changes(lock, report.to_dict())
    for line in changed:
        write_line(f"changed: {line}")
    return 1 if changed else _exit_code(report, arguments.strict)


def _print_hits(report: HitReport) -> None:
    width = max((len(name) for name in report.patterns), default=0)
    for name, entry in report.patterns.items():
        write_line(f"{name:<{width}}  {entry.verdict}  {entry.reason}")
    for line in (*report.notes, *report.breaks, *report.recompiles):
        write_line(f"note: {line}")
    unsure = [name for name, entry in report.patterns.items() if entry.verdict is Verdict.INCONCLUSIVE]
    write_line(
        f"{report.subject} on {report.target}, {report.window}, {report.dtype}, {report.graphs} graph(s)"
        + (f"; inconclusive: {', '.join(unsure)}" if unsure else "")
    )


def _exit_code(report: HitReport, strict: bool) -> int:
    verdicts = [entry.verdict for entry in report.patterns.values()]
    if not verdicts or Verdict.FAIL in verdicts or not any(verdicts):
        return 1
    return 1 if strict and Verdict.INCONCLUSIVE in verdicts else 0


def _read_lock(path: Path) -> dict[str, Any]:
    from fusionkit.match.hits import SCHEMA
    from fusionkit.store import read_json

    lock = read_json(path)
    if not isinstance(lock, dict) or lock.get("schema") != SCHEMA:
        raise MisuseError(
            f"{path}: not a hits JSON of schema {SCHEMA}; write one with `fusionkit hits ... --json`"
        )
    return lock


def _changes(lock: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs from a saved report: hits, and the modules that were hit, per pattern."""
    lines = []
    for name, entry in lock["patterns"].items():
        current = now["patterns"].get(name)
        if current is None:
            lines.append(f"{name}: not reported any more")
            continue
        then_at = sorted(site["module"] for site in entry["sites"])
        now_at = sorted(site["module"] for site in current["sites"])
        if then_at != now_at:
            lost = sorted(set(then_at) - set(now_at))
            where = f"; lost {', '.join(lost[:3])}" if lost else ""
            lines.append(f"{name}: {entry['hits']} hits then, {current['hits']} now{where}")
    return lines


def _configure_explain(parser: argparse.ArgumentParser) -> None:
    add_subject_options(parser)
    add_graph_options(parser)
    parser.add_argument(
        "--pattern", required=True, metavar="NAME|FILE.py", help="a pattern of the kit, or a pattern file"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _explain(arguments: argparse.Namespace) -> int:
    from fusionkit.match.missing import explain_pattern

    from_file = arguments.pattern.endswith(".py")
    if from_file:
        from fusionkit.npu.target import use_target
        from fusionkit.passes.trial import trial_groups

        use_target(arguments.target)
        names = tuple(trial_groups(Path(arguments.pattern)))
        matching, counts = make_matching(arguments, (), (arguments.pattern,))
    else:
        names = (arguments.pattern,)
        matching, counts = make_matching(arguments, names)
    reports = [explain_pattern(matching, name, counts) for name in names]
    if arguments.json:
        write_result(reports[0].to_dict() if len(reports) == 1 else [report.to_dict() for report in reports])
    else:
        for report in reports:
            _print_explained(report)
        for line in matching.capture.notes:
            write_line(f"note: {line}")
    found = any(report.hits.matches or report.hits.fused for report in reports)
    return 1 if any(report.missed for report in reports) or not found else 0


def _print_explained(report: ExplainReport) -> None:
    fused = f", {len(report.hits.fused)} already fused" if report.hits.fused else ""
    write_line(
        f"{report.pattern}: {len(report.hits.hits)} hits{fused}, {len(report.hits.skipped)} skipped,"
        f" {len(report.missed)} missed"
    )
    for site in report.hits.fused:
        write_line(f"  already fused {told(site.module)} ({site.anchor}): {site.source} calls {site.op}")
    for match in report.hits.skipped:
        write_line(f"  skipped {told(match.module)} ({match.anchor}): {match.reason}")
    for item in report.missed:
        write_line(
            f"  missed {told(item.module)} ({told(item.anchor)}, {told(item.source)}), nearest variant {item.pattern}"
        )
        for cause in item.causes:
            write_line(
                f"    {cause.type}: pattern node {told(cause.pattern_node)}, graph node {told(cause.graph_node)}:"
                f" pattern has {cause.expected}, graph has {cause.actual}"
            )
            write_line(f"      {cause.fix}")


HITS = Command(
    "hits",
    "count a subject's hits per pattern and site, against the independent count of sites",
    "fusionkit hits flux --json",
    _configure_hits,
    _hits,
)

EXPLAIN = Command(
    "explain",
    "say for every site that a pattern misses why, to the node",
    "fusionkit explain flux --pattern my_rms_norm_pattern.py",
    _configure_explain,
    _explain,
)
