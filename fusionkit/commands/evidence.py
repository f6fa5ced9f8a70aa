"""fusionkit verify and fusionkit status: verification and status of a run folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from fusionkit.commands.command import Command, write_line, write_result
from fusionkit.commands.progress import step


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", type=Path, metavar="DIR", help="a folder that `fusionkit run` wrote")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _verify(arguments: argparse.Namespace) -> int:
    from fusionkit.evidence.verify import verify_evidence

    step("checking hashes, and computing hits and numbers again")
    verification = verify_evidence(arguments.run_dir)
    if arguments.json:
        write_result(verification.to_dict())
    else:
        for finding in verification.findings:
            write_line(f"{finding.effect}: {finding.path}: {finding.what}")
        verdicts = ", ".join(f"{phase['phase']:02d} {phase['verdict']}" for phase in verification.phases)
        write_line(f"{verification.outcome}: {arguments.run_dir} (phases: {verdicts or 'none'})")
    return 0 if verification else 1


def _status(arguments: argparse.Namespace) -> int:
    from fusionkit.evidence.status import run_status

    status = run_status(arguments.run_dir)
    if arguments.json:
        write_result(status.to_dict())
    else:
        for row in status.rows:
            write_line(f"{row.notebook}  {row.verdict}  {row.reason}".rstrip())
        write_line(f"{arguments.run_dir}: {status.state}")
    return 0


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
