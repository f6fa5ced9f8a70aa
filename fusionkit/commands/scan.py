"""fusionkit scan: find code in a model's source that torch_npu's fused ops can replace."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fusionkit.commands.command import Command, step, write_line, write_report
from fusionkit.errors import MisuseError

if TYPE_CHECKING:
    from fusionkit.identify.candidates import ScanReport
    from fusionkit.identify.profiled.findings import ProfileFindings

_MOST_PROCESSES = 256


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="files, folders, or the names of installed packages"
    )
    parser.add_argument(
        "--op", action="append", default=[], metavar="OP", help="only this op; may be repeated"
    )
    parser.add_argument(
        "--prove",
        action="store_true",
        help="run replacement and original side by side on target cpu; this imports and runs the scanned code",
    )
    parser.add_argument(
        "--time-limit", type=_seconds, metavar="S", help="what one proof may take (default: 180 seconds)"
    )
    parser.add_argument("--out", type=Path, metavar="REPORT.md", help="write the identification report")
    parser.add_argument(
        "--diffs",
        type=Path,
        metavar="DIR",
        help="write each replacement as a .diff for git apply or patch -p1",
    )
    parser.add_argument("--lang", choices=("zh", "en"), default="zh", help="of the report (default: zh)")
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="PROFILE",
        help="a kernel_details.csv: what is fused in it is deferred, the report takes it in",
    )
    parser.add_argument(
        "--wheel", type=Path, metavar="WHEEL", help="the torch_npu wheel that the report looks the API up in"
    )
    parser.add_argument("--processes", type=_count, metavar="N", help="how many read (default: one per core)")
    parser.add_argument("--no-cache", action="store_true", help="read every file anew")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_PROCESSES:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {_MOST_PROCESSES}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def _scan(arguments: argparse.Namespace) -> int:
    from fusionkit.identify.scan import only, scan

    _check_out(arguments.out)
    if arguments.diffs is not None and arguments.diffs.exists() and not arguments.diffs.is_dir():
        raise MisuseError(f"{arguments.diffs}: no folder; the diffs go into one, give --diffs DIR")
    for given in (arguments.profile, arguments.wheel):
        if given is not None and not given.exists():
            raise MisuseError(f"{given}: no such file")
    step("reading")
    report = scan(arguments.paths, processes=arguments.processes, cache=not arguments.no_cache, tell=step)
    report = only(report, arguments.op)
    profile = None
    if arguments.profile is not None:
        from fusionkit.identify.profiled.assess import assess_profile
        from fusionkit.identify.profiled.judged import with_profile

        profile = assess_profile(arguments.profile)
        report = with_profile(report, profile)
    if arguments.prove:
        from fusionkit.identify.proofs import with_proofs

        report = with_proofs(report, time_limit_s=arguments.time_limit, tell=step)
    if arguments.out is not None or arguments.json or arguments.diffs is not None:
        report = _with_replacements(report, profile, arguments)
    write_report(arguments, report, _print)
    return 0 if report.files > len(report.failed) else 1


def _check_out(out: Path | None) -> None:
    """Raise MisuseError for a report path that is a folder or Python source."""
    if out is not None and (out.suffix == ".py" or out.is_dir()):
        raise MisuseError(
            f"{out}: a report is a Markdown file, and no source is written over; give --out NAME.md"
        )


def _with_replacements(
    report: ScanReport, profile: ProfileFindings | None, arguments: argparse.Namespace
) -> ScanReport:
    """Write the replacements, and the report and diffs if asked for; returns the scan with its replacements."""
    from fusionkit.identify.replacements import replacements, with_diffs, write_diffs
    from fusionkit.identify.report import report_text
    from fusionkit.store import write_text

    step("writing the replacements")
    written = replacements(report, processes=arguments.processes, tell=step)
    if arguments.out is not None:
        step("writing the report")
        text = report_text(
            report, lang=arguments.lang, wheel=arguments.wheel, profile=profile, written=written
        )
        write_text(arguments.out, text)
    if arguments.diffs is not None:
        write_diffs(report, written, arguments.diffs)
    return with_diffs(report, written)


def _print(report: ScanReport) -> None:
    from fusionkit.identify.replacements import LOST

    for item in report.candidates:
        hazards = f"; {', '.join(item.hazards)}" if item.hazards else ""
        base = f" (written in {item.inherited_from})" if item.inherited_from else ""
        proof = "" if item.proof is None else f"; proof {item.proof['verdict']}"
        write_line(
            f"{item.file}:{item.line} {item.symbol}{base}: {item.op}: {item.recommend}: {item.reason}{hazards}{proof}"
        )
    for failed in report.failed:
        write_line(f"{failed.file}: not read: {failed.reason}")
    for item in report.candidates:
        if item.replacement is not None and item.replacement["refused"] == LOST:
            write_line(f"{item.file}:{item.line} {item.symbol}: {item.op}: no replacement: {LOST}")
    counts = {
        word: sum(item.recommend == word for item in report.candidates) for word in ("yes", "defer", "no")
    }
    write_line(
        f"{report.files} files, {len(report.candidates)} candidates: {counts['yes']} recommended, {counts['defer']} to"
        f" defer, {counts['no']} not recommended; {len(report.failed)} files not read"
    )


SCAN = Command(
    "scan",
    "find what torch_npu's fused ops can replace in source files, folders or installed packages, by reading them",
    "fusionkit scan transformers.models.llama --prove --out report.md",
    _configure,
    _scan,
)
