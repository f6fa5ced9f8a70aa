"""fusionkit verify and fusionkit status: verification and status of a run folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fusionkit.commands.command import Command, step, write_line, write_report

if TYPE_CHECKING:
    from fusionkit.evidence.status import RunStatus
    from fusionkit.evidence.verify import Verification


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", type=Path, metavar="DIR", help="a folder that `fusionkit run` wrote")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _verify(arguments: argparse.Namespace) -> int:
    from fusionkit.evidence.verify import verify_evidence

    step("checking hashes, and computing hits and numbers again")
    verification = verify_evidence(arguments.run_dir)
    write_report(arguments, verification, _print_verification)
    return 0 if verification else 1


def _print_verification(verification: Verification) -> None:
    for finding in verification.findings:
        write_line(f"{finding.effect}: {finding.path}: {finding.what}")
    verdicts = ", ".join(f"{phase['phase']:02d} {phase['verdict']}" for phase in verification.phases)
    write_line(f"{verification.outcome}: {verification.run_dir} (phases: {verdicts or 'none'})")


def _status(arguments: argparse.Namespace) -> int:
    from fusionkit.evidence.status import run_status

    write_report(arguments, run_status(arguments.run_dir), _print_status)
    return 0


def _print_status(status: RunStatus) -> None:
    for row in status.rows:
        write_line(f"{row.notebook}  {row.verdict}  {row.reason}".rstrip())
    write_line(f"{status.run_dir}: {status.state}")


VERIFY = Command(
    "verify",
    "check hashes, record, verdicts and inputs of a run folder; 0 only when verified",
    "fusionkit verify evidence/flux-tiny",
    _configure,
    _verify,
)

STATUS = Command(
    "status",
    "show the phases of a run folder and their verdicts",
    "fusionkit status evidence/flux-tiny --json",
    _configure,
    _status,
)
