"""fusionkit capture: the compile graphs of a subject as a capsule."""

from __future__ import annotations

import argparse
from pathlib import Path

from fusionkit.commands.command import Command, step, write_line
from fusionkit.commands.subject import add_subject_options, capture_subject, load
from fusionkit.store import write_text


def _configure(parser: argparse.ArgumentParser) -> None:
    add_subject_options(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json", help="the capsule to write")
    parser.add_argument(
        "--text", action="store_true", help="write each graph as readable text beside the capsule"
    )


def _capture(arguments: argparse.Namespace) -> int:
    from fusionkit.capture.capsule import graph_text, write_capsule
    from fusionkit.subjects.site_counts import expected_counts

    subject = load(arguments, train=arguments.train)
    step("counting sites in eager mode")
    capture = capture_subject(arguments, subject, expected_counts(subject))
    write_capsule(capture, arguments.out)
    for graph in capture.graphs:
        if arguments.text:
            write_text(arguments.out.with_suffix(f".{graph.key.index}.{graph.window}.txt"), graph_text(graph))
        write_line(f"graph {graph.key.index} ({graph.key.kind}), {graph.window}: {len(graph.nodes)} nodes")
    for line in (*capture.notes, *capture.breaks, *capture.recompiles):
        write_line(f"note: {line}")
    write_line(str(arguments.out))
    return 0


CAPTURE = Command(
    "capture",
    "compile a subject without patterns and write its graphs as a capsule",
    "fusionkit capture flux --out flux.capsule.json",
    _configure,
    _capture,
)
