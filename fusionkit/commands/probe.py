"""fusionkit probe: count a pattern in the graphs of a real compile, by the kit's or another backend."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fusionkit.commands.command import Command, step, write_line, write_report
from fusionkit.commands.subject import add_subject_options, graph_options, load, or_dash

if TYPE_CHECKING:
    from fusionkit.passes.probe import ProbeReport


def _configure(parser: argparse.ArgumentParser) -> None:
    add_subject_options(parser, pattern=True)
    parser.add_argument(
        "--backend",
        default="fusionkit",
        metavar="MODULE:CALLABLE",
        help="another torch.compile backend, or a name that torch knows; default fusionkit",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _probe(arguments: argparse.Namespace) -> int:
    from fusionkit.passes.probe import probe
    from fusionkit.verdict import Verdict

    pattern = Path(arguments.pattern) if arguments.pattern.endswith(".py") else arguments.pattern
    subject = load(arguments, train=arguments.train)
    step("compiling and counting")
    report = probe(
        subject,
        pattern,
        backend=arguments.backend,
        window=arguments.window,
        decompositions=arguments.decompositions,
        **graph_options(arguments),
    )
    write_report(arguments, report, _print)
    return 0 if report.verdict is Verdict.PASS else 1


def _print(report: ProbeReport) -> None:
    for match in report.matches:
        why = f": {match.reason}" if match.reason else ""
        write_line(f"  {match.pattern} {match.status} {or_dash(match.module)} ({match.anchor}){why}")
    write_line(f"{report.verdict}  {report.reason}")
    if report.cause is not None:
        write_line(f"  {report.cause.fix}")


PROBE = Command(
    "probe",
    "count a pattern in the graphs of a real compile, without rewriting, also in another backend's",
    "fusionkit probe flux --pattern rms_norm --backend aot_eager",
    _configure,
    _probe,
)
