"""fusionkit probe: count a pattern in the graphs of a real compile, by the kit's or another backend."""

from __future__ import annotations

import argparse
from pathlib import Path

from fusionkit.commands.command import Command, write_line, write_result
from fusionkit.commands.subject import (
    add_graph_options,
    add_pattern_option,
    add_subject_options,
    graph_options,
    is_capsule,
    load,
    or_dash,
)
from fusionkit.errors import MisuseError


def _configure(parser: argparse.ArgumentParser) -> None:
    add_subject_options(parser)
    add_graph_options(parser)
    add_pattern_option(parser)
    parser.add_argument(
        "--backend",
        default="fusionkit",
        metavar="MODULE:CALLABLE",
        help="another torch.compile backend, or a name that torch knows; default fusionkit",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _probe(arguments: argparse.Namespace) -> int:
    from fusionkit.commands.progress import step
    from fusionkit.npu.target import use_target
    from fusionkit.passes.probe import probe
    from fusionkit.verdict import Verdict

    if is_capsule(arguments.subject):
        raise MisuseError(
            f"{arguments.subject}: a capsule is not compiled; use `fusionkit hits {arguments.subject}"
            " --pattern-file FILE.py`, or name the model"
        )
    use_target(arguments.target, tell=step)
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
    if arguments.json:
        write_result(report.to_dict())
    else:
        for match in report.matches:
            why = f": {match.reason}" if match.reason else ""
            write_line(f"  {match.pattern} {match.status} {or_dash(match.module)} ({match.anchor}){why}")
        write_line(f"{report.verdict}  {report.reason}")
        if report.cause is not None:
            write_line(f"  {report.cause.fix}")
    return 0 if report.verdict is Verdict.PASS else 1


PROBE = Command(
    "probe",
    "count a pattern in the graphs of a real compile, without rewriting, also in another backend's",
    "fusionkit probe flux --pattern rms_norm --backend aot_eager",
    _configure,
    _probe,
)
