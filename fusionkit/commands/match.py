"""fusionkit hits: hits per pattern and site, compared with the independent count of sites."""

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
)
from fusionkit.errors import MisuseError
from fusionkit.verdict import Verdict

if TYPE_CHECKING:
    from fusionkit.match.hits import HitReport


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
    from fusionkit.fusions import pattern_names
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
    """Differences from a saved report per pattern: number of hits, and modules with hits."""
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


HITS = Command(
    "hits",
    "count a subject's hits per pattern and site, against the independent count of sites",
    "fusionkit hits flux --json",
    _configure_hits,
    _hits,
)
