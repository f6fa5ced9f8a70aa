"""fusionkit compare: how two captures of one model differ."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fusionkit.commands.command import Command, write_line, write_report
from fusionkit.commands.subject import add_patterns_options, add_window_option, or_dash
from fusionkit.errors import MisuseError

if TYPE_CHECKING:
    from fusionkit.match.graph_comparison import GraphComparison, Side
    from fusionkit.match.rewrites import Ops, Rewrite

_MOST_REWRITES = 12  # the JSON has all


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", type=Path, metavar="A.json", help="a capsule")
    parser.add_argument("b", type=Path, metavar="B.json", help="a capsule of the same subject")
    add_patterns_options(parser)
    add_window_option(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _compare(arguments: argparse.Namespace) -> int:
    from fusionkit.match.comparing import compare_capsules
    from fusionkit.subjects.table import is_capsule

    for path in (arguments.a, arguments.b):
        if not is_capsule(str(path)):
            raise MisuseError(
                f"{path}: not a capsule file; write one with `fusionkit capture {path} --out ...`"
            )
    comparison = compare_capsules(
        arguments.a, arguments.b, patterns=arguments.pattern, window=arguments.window
    )
    write_report(arguments, comparison, _print)
    return 0


def _print(comparison: GraphComparison) -> None:
    for letter, side in (("A", comparison.a), ("B", comparison.b)):
        write_line(f"{letter}: {_side_line(side)}")
    if comparison.same:
        write_line("the same graphs")
    _print_counts(comparison)
    rewrites = comparison.rewrites
    for rewrite in rewrites[:_MOST_REWRITES]:
        write_line(f"{rewrite.places:>5} x  {_rewrite_line(rewrite)}")
    if len(rewrites) > _MOST_REWRITES:
        write_line(f"         and {len(rewrites) - _MOST_REWRITES} more kinds of change, see --json")
    _print_sites(comparison)
    for note in comparison.notes:
        write_line(f"note: {note}")
    write_line(comparison.sum_line())


def _side_line(side: Side) -> str:
    return (
        f"{side.subject} {side.size} on {side.target}, {side.dtype}, {side.window}, torch {side.torch},"
        f" {side.nodes} nodes"
    )


def _print_counts(comparison: GraphComparison) -> None:
    for pair in comparison.graphs:
        if pair.a is None or pair.b is None:
            write_line(f"graph {pair.number} ({pair.kind}): only in {'B' if pair.a is None else 'A'}")
        if pair.difference:
            write_line(f"graph {pair.number} ({pair.kind}): the same ops, but {pair.difference}")
    for what, tallies in (
        ("device", comparison.devices),
        ("dtype", comparison.dtypes),
        ("op", comparison.ops),
    ):
        width = max((len(tally.name) for tally in tallies), default=0)
        for index, tally in enumerate(tallies):
            if index == 0:
                write_line(f"{what:<{width}}  {'A':>6}  {'B':>6}")
            write_line(f"{tally.name:<{width}}  {tally.a:>6}  {tally.b:>6}")


def _rewrite_line(rewrite: Rewrite) -> str:
    where = rewrite.sources or tuple(or_dash(module) for module in rewrite.modules)
    more = f" and {len(where) - 1} more" if len(where) > 1 else ""
    return f"{_ops_text(rewrite.a)} -> {_ops_text(rewrite.b)}  at {where[0]}{more}"


def _ops_text(ops: Ops) -> str:
    return ", ".join(f"{count} {name}" if count > 1 else name for name, count in ops) or "nothing"


def _print_sites(comparison: GraphComparison) -> None:
    """Print the differing sites, one line for all with the same difference."""
    modules: dict[tuple[str, str, str, str], list[str]] = {}
    for site in comparison.differing_sites:
        modules.setdefault((site.pattern, site.a, site.b, site.note), []).append(site.module)
    for (pattern, a, b, note), (first, *others) in modules.items():
        more = f" and {len(others)} more" if others else ""
        why = f"  ({note})" if note else ""
        write_line(f"{pattern}: {a} -> {b}  {or_dash(first)}{more}{why}")


COMPARE = Command(
    "compare",
    "say how two captures of one model differ: graphs, ops, sites",
    "fusionkit compare llama.cpu.json llama.npu-dry.json",
    _configure,
    _compare,
)
