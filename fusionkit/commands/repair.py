"""fusionkit repair and fusionkit synthesize: write pattern files from a graph, verified by matcher and numbers."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fusionkit.commands.command import Command, step, write_line, write_report
from fusionkit.commands.subject import add_subject_options, make_capture, names_of, or_dash
from fusionkit.errors import MisuseError
from fusionkit.visible import with_readings

if TYPE_CHECKING:
    from fusionkit.capture.graphs import Capture
    from fusionkit.match.repairing.report import RepairReport
    from fusionkit.match.repairing.synthesis import SynthesisReport


def _configure_repair(parser: argparse.ArgumentParser) -> None:
    add_subject_options(parser, pattern=True)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FIXED.py", help="the new file; never overwritten"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _repair(arguments: argparse.Namespace) -> int:
    from fusionkit.config import CompilationConfig
    from fusionkit.match.repairing.repair import repair
    from fusionkit.pattern_files.naming import names_of_file

    _refuse_existing(arguments.out)
    capture = _capture(arguments)
    step("repairing and proving")
    report = repair(
        capture,
        arguments.pattern,
        config=CompilationConfig(window=arguments.window, decompositions=arguments.decompositions),
        seed=arguments.seed,
        names=names_of_file(arguments.out.stem),
    )
    if report.offered:
        report.write(arguments.out)
    write_report(arguments, report, partial(_print_repair, out=arguments.out))
    return 0 if report.offered else 1


def _print_repair(report: RepairReport, out: Path) -> None:
    from fusionkit.pattern_files.naming import names_of_file

    write_line(f"{report.pattern}: {report.before} hits before, {report.after} after")
    for name, lines in report.edits.items():
        write_line(f"  {name}")
        for line in lines:
            write_line(f"    {with_readings(line)}")
    for site in report.sites:
        if site.verdict is not None:
            write_line(f"  repaired {or_dash(site.module)} ({site.anchor}): {site.verdict}, {site.reason}")
    for missed in report.missed:
        write_line(
            f"  still missed {or_dash(missed.module)} ({or_dash(missed.anchor)}, {or_dash(missed.source)})"
        )
        for cause in missed.causes:
            write_line(
                f"    {cause.type}: pattern node {or_dash(cause.pattern_node)}, graph node {or_dash(cause.graph_node)}:"
                f" pattern has {with_readings(cause.expected)}, graph has {with_readings(cause.actual)}"
            )
            write_line(f"      {cause.fix}")
    if report.copies is not None and report.copies.more:
        write_line(f"  {report.copies}")
    write_line(f"written to {out}" if report.offered else f"no repair is offered: {report.reason}")
    if report.offered and not out.stem.endswith("_pattern"):
        write_line(f"  lint wants a pattern file to be named {names_of_file(out.stem).file}")


def _configure_synthesize(parser: argparse.ArgumentParser) -> None:
    add_subject_options(parser)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--nodes", metavar="A,B,...", help="names of the graph nodes of one site")
    chosen.add_argument("--lines", metavar="FILE:10-20", help="source lines of the model")
    parser.add_argument("--name", help="the fusion's name; default: from the name of --out")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE.py", help="the new file; never overwritten"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _synthesize(arguments: argparse.Namespace) -> int:
    from fusionkit.match.repairing.synthesis import synthesize
    from fusionkit.pattern_files.naming import names_of_file

    _refuse_existing(arguments.out)
    name = arguments.name or names_of_file(arguments.out.stem).name
    capture = _capture(arguments)
    step("writing and matching")
    report = synthesize(
        capture,
        name,
        nodes=names_of(arguments.nodes) or (),
        lines=arguments.lines,
        window=arguments.window,
    )
    if not report.reason:
        report.write(arguments.out)
    write_report(arguments, report, partial(_print_synthesis, out=arguments.out))
    return 0 if report.hits == report.sites and not report.reason else 1


def _print_synthesis(report: SynthesisReport, out: Path) -> None:
    besides = f", and {report.besides} other places" if report.besides else ""
    write_line(f"{report.name}: {report.hits} hits of {report.sites} sites of the chosen forms{besides}")
    for (cls, taken), differs in zip(report.taken, report.differs, strict=True):
        write_line(f"  {cls}: replacement {taken or 'is yours to write (it repeats the search part)'}")
        if differs:
            write_line(f"    {differs}")
    if report.copies is not None and report.copies.more:
        write_line(f"  {report.copies}")
    write_line(f"no file is written: {report.reason}" if report.reason else f"written to {out}")


def _capture(arguments: argparse.Namespace) -> Capture:
    """`make_capture` on a target that computes values; MisuseError on another one."""
    from fusionkit.npu.target import shows_values

    if not shows_values(arguments.target):
        raise MisuseError(
            f"target {arguments.target} computes nothing, so nothing can be proven on it; capture a capsule there"
            " and give that to target cpu"
        )
    return make_capture(arguments)


def _refuse_existing(out: Path) -> None:
    if out.exists():
        raise MisuseError(f"{out}: exists already and is never overwritten; give another --out")


REPAIR = Command(
    "repair",
    "write a pattern file whose variants hit the sites that a pattern misses, and prove it",
    "fusionkit repair flux --pattern my_rms_norm_pattern.py --out fixed_rms_norm_pattern.py",
    _configure_repair,
    _repair,
)

SYNTHESIZE = Command(
    "synthesize",
    "write a pattern file from chosen sites of the graph",
    "fusionkit synthesize llama --lines modeling_llama.py:62-67 --out my_norm_pattern.py",
    _configure_synthesize,
    _synthesize,
)
