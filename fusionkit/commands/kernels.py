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
    profile = _profile(arguments.profile)
    value = profile.to_dict()
    if arguments.json:
        write_result(value)
        return 0
    timed = profile.source != "cpu"
    by = "us" if timed else "count"
    for name, entry in sorted(value["by_type"].items(), key=lambda item: -item[1][by]):
        us = f"  {entry['us']:>14.2f} us" if timed else ""
        write_line(f"{entry['count']:>7}{us}  {name}")
    total = f" {value['total_us']:.2f} us," if timed else ""
    write_line(f"{value['rows']} rows,{total} {len(value['problems'])} unreadable rows")
    for problem in value["problems"]:
        write_line(f"line {problem['line']}: {problem['what']}")
    _write_note(profile.note)
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    from fusionkit.profile.diff import diff_profiles

    diff = diff_profiles(_profile(arguments.baseline), _profile(arguments.candidate))
    if arguments.json:
        write_result(diff.to_dict())
        return 0
    for row in diff.kernels:
        change = f"{row.count:>+7}" if diff.is_cpu else f"{row.us:>+14.2f} us"
        write_line(f"{row.baseline_count:>6} -> {row.candidate_count:<6}  {change}  {row.key}")
    before, after = diff.baseline, diff.candidate
    if diff.is_cpu:
        write_line(f"{len(before.records)} kernels -> {len(after.records)} kernels")
    else:
        write_line(f"{before.total_us:.2f} us -> {after.total_us:.2f} us")
    write_line(f"vanished: {', '.join(diff.vanished) or 'none'}; new: {', '.join(diff.new) or 'none'}")
    _write_note(diff.note)
    return 0


def _write_note(note: str | None) -> None:
    if note is not None:
        write_line(f"note: {note}")


def _copies(arguments: argparse.Namespace) -> int:
    from fusionkit.profile.copies import analyze_copies

    profile = _profile(arguments.profile)
    report = analyze_copies(profile, _baseline(arguments))
    if arguments.json:
        write_result(report.to_dict())
    else:
        for pair in report.pairs:
            us = "" if profile.source == "cpu" else f"  {pair.us:>12.2f} us"
            write_line(
                f"{pair.count:>6}{us}  {or_dash(pair.previous)} -> {pair.copy} -> {or_dash(pair.next)}"
            )
        write_line(f"{report.verdict}: {report.reason}")
        _write_note(report.note)
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
