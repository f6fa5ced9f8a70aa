"""fusionkit hits and fusionkit numeric: hits per pattern and site, and the numbers of each hit."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusionkit.commands.command import Command, step, write_line, write_report, write_result
from fusionkit.commands.subject import (
    add_patterns_options,
    add_subject_options,
    config_for,
    load,
    make_matching,
)
from fusionkit.errors import MisuseError
from fusionkit.verdict import Verdict, combine

if TYPE_CHECKING:
    from fusionkit.match.hits import HitReport


@dataclass(frozen=True, slots=True)
class _LockedSite:
    module: str


@dataclass(frozen=True, slots=True)
class _LockedPattern:
    hits: int
    sites: tuple[_LockedSite, ...]


@dataclass(frozen=True, slots=True)
class _Lock:
    """What is compared of a saved report."""

    patterns: Mapping[str, _LockedPattern]


def _configure_hits(parser: argparse.ArgumentParser) -> None:
    add_subject_options(parser)
    add_patterns_options(parser)
    parser.add_argument("--all", action="store_true", help="every pattern of the kit")
    parser.add_argument(
        "--check", type=Path, metavar="LOCK.json", help="a saved hits JSON that must be met again"
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 when a pattern is INCONCLUSIVE")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _hits(arguments: argparse.Namespace) -> int:
    from fusionkit.fusions import pattern_names
    from fusionkit.match.hits import report_hits

    names = [*pattern_names(), *(arguments.pattern or ())] if arguments.all else arguments.pattern
    lock = None if arguments.check is None else _read_lock(arguments.check)
    matching, counts = make_matching(arguments, names)
    report = report_hits(matching, counts)
    write_report(arguments, report, _print_hits)
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


def _read_lock(path: Path) -> _Lock:
    from fusionkit.encoding import decode
    from fusionkit.match.hits import SCHEMA
    from fusionkit.store import read_json

    lock = read_json(path)
    what = f"{path}: not a hits JSON of schema {SCHEMA}; write one with `fusionkit hits ... --json`"
    if not isinstance(lock, dict) or lock.get("schema") != SCHEMA:
        raise MisuseError(what)
    return decode(_Lock, lock, what)


def _changes(lock: _Lock, now: dict[str, Any]) -> list[str]:
    """Differences from a saved report per pattern: number of hits, and modules with hits."""
    lines = []
    for name, entry in lock.patterns.items():
        current = now["patterns"].get(name)
        if current is None:
            lines.append(f"{name}: not reported any more")
            continue
        then_at = sorted(site.module for site in entry.sites)
        now_at = sorted(site["module"] for site in current["sites"])
        if then_at != now_at:
            lost = sorted(set(then_at) - set(now_at))
            where = f"; lost {', '.join(lost[:3])}" if lost else ""
            lines.append(f"{name}: {entry.hits} hits then, {current['hits']} now{where}")
    return lines


def _configure_numeric(parser: argparse.ArgumentParser) -> None:
    add_subject_options(parser, graphs=False)
    add_patterns_options(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _numeric(arguments: argparse.Namespace) -> int:
    from fusionkit.match.hits import default_patterns
    from fusionkit.match.site_replay import replay_hits
    from fusionkit.match.whole_model import compare_model
    from fusionkit.npu.target import shows_values
    from fusionkit.passes.compiled import compile_subject
    from fusionkit.subjects.load import load_subject
    from fusionkit.subjects.site_counts import expected_counts

    if not shows_values(arguments.target):
        raise MisuseError(f"numeric: target {arguments.target} computes nothing; use --target cpu or npu")
    subject = load(arguments)
    if subject.fake is not None:
        raise MisuseError(
            "numeric: the full size is built without weights, from fake tensors; use --size tiny"
        )
    names = arguments.pattern or default_patterns(expected_counts(subject))
    config = config_for(arguments, names)
    step("compiling, and replaying every hit")
    replays = replay_hits(compile_subject(subject, config, keep_inputs=True), seed=arguments.seed)
    step("comparing the whole model in float32")
    twin = load_subject(arguments.subject, size=arguments.size, dtype="float32", seed=arguments.seed)
    model = compare_model(compile_subject(twin, config))
    verdict = combine((replays.verdict, model.verdict))
    if arguments.json:
        whole = {"dtype": "float32", "verdict": str(model.verdict), "reason": model.reason}
        write_result(
            {
                "schema": "fusionkit.numeric/1",
                "verdict": str(verdict),
                "sites": replays.to_dict(),
                "model": whole,
            }
        )
    else:
        write_line(f"sites  {replays.verdict}  {replays.reason}")
        write_line(f"model  {model.verdict}  {model.reason}")
    return 0 if verdict is Verdict.PASS else 1


HITS = Command(
    "hits",
    "count a subject's hits per pattern and site, against the independent count of sites",
    "fusionkit hits flux --json",
    _configure_hits,
    _hits,
)

NUMERIC = Command(
    "numeric",
    "replay every hit on its own inputs, and compare the whole model in float32",
    "fusionkit numeric llama --pattern rms_norm",
    _configure_numeric,
    _numeric,
)
