"""fusionkit hits and fusionkit numeric: hits per pattern and site, and the numbers of each hit."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
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
    from fusionkit.match.site_replay import ReplayReport
    from fusionkit.match.whole_model import ModelComparison
    from fusionkit.numeric.counterexample import Search
    from fusionkit.subjects.build import Subject


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
    parser.add_argument("--all", action="store_true", help="list every pattern of the kit")
    parser.add_argument(
        "--check", type=Path, metavar="LOCK.json", help="a saved hits JSON that must be met again"
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 when a pattern is INCONCLUSIVE")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _hits(arguments: argparse.Namespace) -> int:
    from fusionkit.fusions import pattern_names
    from fusionkit.match.uncounted import report_all

    names = [*pattern_names(), *(arguments.pattern or ())] if arguments.all else arguments.pattern
    lock = None if arguments.check is None else _read_lock(arguments.check)
    matching, counts = make_matching(arguments, names)
    report = report_all(matching, counts, names)
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
    _print_sum(report)


def _print_sum(report: HitReport) -> None:
    """The patterns without anything to count, and the last line, which names what is INCONCLUSIVE."""
    if report.absent:
        write_line(f"note: no site count, no match and no near miss: {', '.join(report.absent)}")
    unsure = [name for name, entry in report.patterns.items() if entry.verdict is Verdict.INCONCLUSIVE]
    write_line(
        f"{report.subject} on {report.target}, {report.window}, {report.dtype}, {report.graphs} graph(s)"
        + (f"; inconclusive: {', '.join(unsure)}" if unsure else "")
    )


def _exit_code(report: HitReport, strict: bool) -> int:
    verdicts = [entry.verdict for entry in report.patterns.values()]
    if not verdicts or Verdict.FAIL in verdicts or not any(verdicts):
        return 1
    return int(strict and _is_unsure(report))


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
    parser.add_argument("--train", action="store_true", help="training graphs; compare gradients too")
    add_patterns_options(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("counterexamples"),
        metavar="DIR",
        help="where an input that shows a difference is kept; default counterexamples",
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 when hits are not counted")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _numeric(arguments: argparse.Namespace) -> int:
    from fusionkit.fusions import pattern_names
    from fusionkit.match.matching import matching_of
    from fusionkit.match.site_replay import replay_hits
    from fusionkit.match.uncounted import report_all
    from fusionkit.match.whole_model import compare_in_float32
    from fusionkit.numeric.counterexample import write_counterexamples
    from fusionkit.passes.compiled import compile_subject
    from fusionkit.subjects.load import load_subject
    from fusionkit.subjects.site_counts import expected_counts

    subject = _with_values(arguments)
    counts, names = expected_counts(subject), arguments.pattern
    config = config_for(arguments, names or pattern_names())
    step("compiling, and replaying every hit")
    compiled = compile_subject(subject, config, keep_inputs=True, train=arguments.train)
    report = report_all(matching_of(compiled), counts, names)
    replays = replay_hits(compiled, seed=arguments.seed, train=arguments.train)
    step("comparing the whole model in float32")
    twin = load_subject(arguments.subject, size=arguments.size, dtype="float32", seed=arguments.seed)
    model = compare_in_float32(compiled, twin)
    verdict = combine((replays.verdict, model.verdict))
    kept = write_counterexamples(arguments.out, replays.counterexamples)
    if arguments.json:
        write_result(_numeric_dict(verdict, replays, model, report))
    else:
        _print_replays(replays, kept)
        write_line(f"model  {model.verdict}  {model.reason}")
        for name, entry in report.patterns.items():
            if entry.verdict is not Verdict.PASS:
                write_line(f"note: hits of {name}: {entry.verdict}  {entry.reason}")
        _print_sum(report)
    return int(verdict is not Verdict.PASS or (arguments.strict and _is_unsure(report)))


def _with_values(arguments: argparse.Namespace) -> Subject:
    """The loaded subject. Raises MisuseError if it or its target has no values."""
    from fusionkit.npu.target import shows_values

    if not shows_values(arguments.target):
        raise MisuseError(f"numeric: target {arguments.target} computes nothing; use --target cpu or npu")
    subject = load(arguments, train=arguments.train)
    if subject.fake is not None:
        raise MisuseError(
            "numeric: the full size is built without weights, from fake tensors; use --size tiny"
        )
    return subject


def _is_unsure(report: HitReport) -> bool:
    return any(entry.verdict is Verdict.INCONCLUSIVE for entry in report.patterns.values())


def _numeric_dict(
    verdict: Verdict, replays: ReplayReport, model: ModelComparison, report: HitReport
) -> dict[str, Any]:
    """The JSON of numeric; `patterns`: the account of the hits, as in that of `hits`."""
    keys = ("hits", "expected_sites", "verdict", "reason", "near_misses")
    entries = {name: entry.to_dict() for name, entry in report.patterns.items()}
    return {
        "schema": "fusionkit.numeric/1",
        "verdict": str(verdict),
        "sites": replays.to_dict(),
        "model": {"dtype": "float32", "verdict": str(model.verdict), "reason": model.reason},
        "patterns": {name: {key: entry[key] for key in keys} for name, entry in entries.items()},
    }


def _print_replays(replays: ReplayReport, kept: Sequence[Path]) -> None:
    """The verdict, one line on the search of each pattern, and the files of counterexamples."""
    write_line(f"sites  {replays.verdict}  {replays.reason}")
    for name in dict.fromkeys(name for name, _ in replays.searches):
        write_line(f"  {name}: {_searched([search for one, search in replays.searches if one == name])}")
    for path in kept:
        write_line(f"  counterexample: {path}")


def _searched(searches: Sequence[Search]) -> str:
    """The deciding search of a pattern's site forms, and what it could not exercise."""
    search = next((search for search in searches if not search), searches[0])
    forms = f" ({len(searches)} forms of sites)" if len(searches) > 1 else ""
    lines = search.not_exercised
    more = f" and {len(lines) - 2} more (--json)" if len(lines) > 2 else ""
    return f"{search.reason}{forms}" + (f"; not exercised: {'; '.join(lines[:2])}{more}" if lines else "")


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
