"""fusionkit kernels: read, compare and judge kernel_details.csv files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fusionkit.commands.command import Command, write_line, write_report, write_result
from fusionkit.commands.subject import or_dash
from fusionkit.verdict import Verdict

if TYPE_CHECKING:
    from fusionkit.profile.kernel_records import Profile


def _configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="load|diff|copies|hit")
    load = actions.add_parser("load", help="read a profile and sum it up by kernel type")
    load.add_argument(
        "profile", type=Path, metavar="PROFILE", help="kernel_details.csv, or a folder above it"
    )
    diff = actions.add_parser("diff", help="compare two profiles kernel by kernel")
    diff.add_argument("baseline", type=Path, metavar="BASELINE")
    diff.add_argument("candidate", type=Path, metavar="CANDIDATE")
    copies = actions.add_parser("copies", help="count copies and their neighbours")
    copies.add_argument("profile", type=Path, metavar="PROFILE")
    copies.add_argument("--baseline", type=Path, metavar="PROFILE", help="profile to compare the copies with")
    hit = actions.add_parser("hit", help="count one fused kernel against the expected sites")
    hit.add_argument("profile", type=Path, metavar="PROFILE")
    hit.add_argument(
        "--kernel", required=True, metavar="NAME", help="a pattern name such as rms_norm, or a kernel type"
    )
    hit.add_argument("--expected", type=int, metavar="N", help="how many sites there are")
    hit.add_argument("--baseline", type=Path, metavar="PROFILE", help="a profile that must have none")
    for action in (load, diff, copies, hit):
        action.add_argument("--json", action="store_true", help="print the result as JSON")


def _kernels(arguments: argparse.Namespace) -> int:
    return {"load": _load, "diff": _diff, "copies": _copies, "hit": _hit}[arguments.action](arguments)


def _profile(path: Path) -> Profile:
    from fusionkit.profile.profile_file import load_profile

    return load_profile(path)


def _baseline(arguments: argparse.Namespace) -> Profile | None:
    return None if arguments.baseline is None else _profile(arguments.baseline)


def _load(arguments: argparse.Namespace) -> int:
    value = _profile(arguments.profile).to_dict()
    if arguments.json:
        write_result(value)
    else:
        for name, entry in sorted(value["by_type"].items(), key=lambda item: -item[1]["us"]):
            write_line(f"{entry['count']:>7}  {entry['us']:>14.2f} us  {name}")
        write_line(
            f"{value['rows']} rows, {value['total_us']:.2f} us, {len(value['problems'])} unreadable rows"
        )
        for problem in value["problems"]:
            write_line(f"line {problem['line']}: {problem['what']}")
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    from fusionkit.profile.diff import diff_profiles

    value = diff_profiles(_profile(arguments.baseline), _profile(arguments.candidate)).to_dict()
    if arguments.json:
        write_result(value)
    else:
        for row in value["kernels"]:
            counts = f"{row['baseline_count']:>6} -> {row['candidate_count']:<6}"
            write_line(f"{counts}  {row['candidate_us'] - row['baseline_us']:>+14.2f} us  {row['key']}")
        write_line(f"{value['baseline_us']:.2f} us -> {value['candidate_us']:.2f} us")
        write_line(
            f"vanished: {', '.join(value['vanished']) or 'none'}; new: {', '.join(value['new']) or 'none'}"
        )
    return 0


def _copies(arguments: argparse.Namespace) -> int:
    from fusionkit.profile.copies import analyze_copies

    report = analyze_copies(_profile(arguments.profile), _baseline(arguments))
    if arguments.json:
        write_result(report.to_dict())
    else:
        for pair in report.pairs:
            write_line(
                f"{pair.count:>6}  {pair.us:>12.2f} us  {or_dash(pair.previous)} -> {pair.copy} -> {or_dash(pair.next)}"
            )
        write_line(f"{report.verdict}: {report.reason}")
    return 0 if report.verdict is Verdict.PASS else 1


def _hit(arguments: argparse.Namespace) -> int:
    from fusionkit.profile.hit import check_kernel_hit

    result = check_kernel_hit(
        _profile(arguments.profile), arguments.kernel, arguments.expected, _baseline(arguments)
    )
    write_report(arguments, result, lambda hit: write_line(f"{hit.verdict}: {hit.reason}"))
    return 0 if result.verdict is Verdict.PASS else 1


KERNELS = Command(
    "kernels",
    "read, compare and judge kernel profiles (kernel_details.csv)",
    "fusionkit kernels diff eager/kernel_details.csv compiled/kernel_details.csv",
    _configure,
    _kernels,
)
