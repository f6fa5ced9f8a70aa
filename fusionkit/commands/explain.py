"""fusionkit explain and fusionkit isolate: causes of a miss, to the node."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusionkit.commands.command import Command, step, write_line, write_report, write_result
from fusionkit.commands.subject import add_subject_options, make_capture, or_dash
from fusionkit.verdict import Verdict
from fusionkit.visible import with_readings

if TYPE_CHECKING:
    from fusionkit.match.explanation.explain import SiteExplanation
    from fusionkit.match.explanation.isolation import IsolationReport
    from fusionkit.match.explanation.missing import ExplainReport


def _configure(parser: argparse.ArgumentParser) -> None:
    _configure_isolate(parser)
    parser.add_argument(
        "--pattern-decompositions",
        choices=("none", "inductor"),
        help="the table that the pattern is traced with, where it is not the model's own",
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 when the sites are not counted")


def _explain(arguments: argparse.Namespace) -> int:
    from fusionkit.match.explanation.missing import explain_capture

    capture = make_capture(arguments, freezing=True)
    step("matching and explaining")
    reports = explain_capture(
        capture,
        arguments.pattern,
        window=arguments.window,
        pattern_table=arguments.pattern_decompositions,
    )
    if arguments.json:
        write_result(reports[0].to_dict() if len(reports) == 1 else [report.to_dict() for report in reports])
    else:
        for report in reports:
            _print(report)
        for line in capture.notes:
            write_line(f"note: {line}")
        for report in reports:
            if report.hits.verdict is Verdict.INCONCLUSIVE:
                write_line(f"inconclusive: {report.pattern}: {report.hits.reason}")
    any_site = any(report.hits.matches or report.hits.fused for report in reports)
    unsure = any(report.hits.verdict is Verdict.INCONCLUSIVE for report in reports)
    missed = any(report.missed for report in reports)
    return int(missed or not any_site or (arguments.strict and unsure))


def _print(report: ExplainReport) -> None:
    from fusionkit.match.explanation.causes import ALIGNED

    fused = f", {len(report.hits.fused)} already fused" if report.hits.fused else ""
    missed = "missed" if report.hits.join is not None else "near misses"
    write_line(
        f"{report.pattern}: {len(report.hits.hits)} hits{fused}, {len(report.hits.skipped)} skipped,"
        f" {len(report.missed)} {missed}"
    )
    if not (report.hits.matches or report.hits.fused or report.missed):
        write_line("  no such primitive in this graph: no place has most of the ops of any variant")
    for name, cause in report.idle.items():
        write_line(f"  variant {name} takes no part: {cause.type}: {cause.actual}")
    for site in report.hits.fused:
        write_line(f"  already fused {or_dash(site.module)} ({site.anchor}): {site.source} calls {site.op}")
    for match in report.hits.skipped:
        write_line(f"  skipped {or_dash(match.module)} ({match.anchor}): {match.reason}")
    for first, *others in _alike(report.missed):
        what = "missed" if report.hits.join is not None else "near miss"
        nearest = f"nearest variant {first.pattern}" if first.near else "nothing here comes near any variant"
        write_line(
            f"  {what} {or_dash(first.module)} ({or_dash(first.anchor)}, {or_dash(first.source)}), {nearest}"
        )
        if others:
            places = ", ".join(or_dash(item.module) for item in others)
            write_line(f"    and for the same causes {len(others)} more: {places}")
        for cause in (cause for cause in first.causes if first.near or cause.type not in ALIGNED):
            values = with_readings(f"pattern has {cause.expected}, graph has {cause.actual}")
            write_line(
                f"    {cause.type}: pattern node {_at(cause.pattern_node, cause.pattern_source)}, graph node"
                f" {_at(cause.graph_node, cause.graph_source)}: {values}"
            )
            write_line(f"      {cause.fix}")
            for line in (cause.edit or "").splitlines():
                write_line(f"      {line}")


def _alike(missed: Sequence[SiteExplanation]) -> list[list[SiteExplanation]]:
    """Group sites by variant and causes, ignoring graph nodes, lines and numbers in names; one group is near nothing."""
    from fusionkit.match.explanation.causes import ALIGNED

    groups: dict[object, list[SiteExplanation]] = {}
    for item in missed:
        causes = tuple(
            (c.type, c.pattern_node, c.expected, re.sub(r"(?<=[a-z_])\d+(_\d+)?\b", "#", c.actual))
            for c in item.causes
            if item.near or c.type not in ALIGNED
        )
        groups.setdefault((item.near and item.pattern, causes), []).append(item)
    return list(groups.values())


def _at(node: str, source: str) -> str:
    return f"{or_dash(node)} ({source})" if source else or_dash(node)


def _configure_isolate(parser: argparse.ArgumentParser) -> None:
    add_subject_options(parser, pattern=True)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _isolate(arguments: argparse.Namespace) -> int:
    from fusionkit.match.explanation.isolation import isolate_capture

    capture = make_capture(arguments)
    step("counting the hits of every prefix")
    report = isolate_capture(capture, arguments.pattern, window=arguments.window)
    write_report(arguments, report, _print_isolated)
    return 0 if any(item.falls_at is None for item in report.variants) else 1


def _print_isolated(report: IsolationReport) -> None:
    for item in report.variants:
        wanted = "" if item.sites is None else f", {item.sites} sites counted"
        write_line(f"{item.variant}: {len(item.levels)} levels{wanted}")
        for level in item.levels:
            mark = "  <- falls here" if level is item.falls_at else ""
            write_line(f"  {level.hits:>5} hits  {level.nodes:>3} nodes  {with_readings(level.call)}{mark}")
            if level.note:
                write_line(f"        {level.note}")


EXPLAIN = Command(
    "explain",
    "say for every site that a pattern misses why, to the node",
    "fusionkit explain flux --pattern my_rms_norm_pattern.py",
    _configure,
    _explain,
)

ISOLATE = Command(
    "isolate",
    "count ever longer prefixes of a pattern in the real graph: where are the hits lost?",
    "fusionkit isolate flux --pattern my_rms_norm_pattern.py",
    _configure_isolate,
    _isolate,
)
