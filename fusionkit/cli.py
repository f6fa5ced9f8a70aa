"""The `fusionkit` command: a table of commands, one line per error, and the exit codes.

0 pass; 1 a gate failed, or nothing was compared; 2 misuse; 3 the run itself broke; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import fusionkit
from fusionkit.commands import (
    api,
    capture,
    compare,
    doctor,
    evidence,
    explain,
    kernels,
    lint,
    match,
    probe,
    repair,
    run,
    scan,
)
from fusionkit.commands.command import Command
from fusionkit.errors import FusionKitError, RunBrokenError, near_names
from fusionkit.processes import disable_backend_autoload
from fusionkit.visible import visible

COMMANDS: tuple[Command, ...] = (
    run.RUN,
    evidence.VERIFY,
    evidence.STATUS,
    capture.CAPTURE,
    compare.COMPARE,
    match.HITS,
    explain.EXPLAIN,
    explain.ISOLATE,
    lint.LINT,
    probe.PROBE,
    repair.REPAIR,
    repair.SYNTHESIZE,
    match.NUMERIC,
    kernels.KERNELS,
    scan.SCAN,
    api.API,
    doctor.DOCTOR,
    run.LAB,
)

_EXIT_CODES = "exit codes: 0 pass; 1 a gate failed, or nothing was compared; 2 misuse; 3 the run itself broke"


class _Parser(argparse.ArgumentParser):
    """ArgumentParser whose errors are one line, with the nearest name for an unknown one."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {visible(message)}; see {self.prog} --help\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"{value!r} is unknown; {near_names(value, action.choices)}")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is left over here, where the options of the command are known."""
        parsed, rest = super().parse_known_args(args, namespace)
        if rest:
            option = next((word.partition("=")[0] for word in rest if word.startswith("-")), None)
            near = "" if option is None else f"; {near_names(option, self._option_string_actions)}"
            self.error(f"unrecognized arguments: {' '.join(rest)}{near}")
        return parsed, rest


def make_parser() -> argparse.ArgumentParser:
    """The parser with all commands of the table."""
    parser = _Parser(prog="fusionkit", description=fusionkit.__doc__, epilog=_EXIT_CODES)
    parser.add_argument("--version", action="version", version=f"fusionkit {fusionkit.__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        subparser = subparsers.add_parser(
            command.name,
            help=command.summary,
            description=command.summary,
            epilog=f"example: {command.example}",
            allow_abbrev=False,
        )
        command.configure(subparser)
        subparser.set_defaults(execute=command.execute)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    disable_backend_autoload()
    code = 0
    try:
        arguments = make_parser().parse_args(words)
        arguments.argv = words
        code = int(arguments.execute(arguments))
        sys.stdout.flush()
    except FusionKitError as error:
        return _complain(str(error), error.exit_code)
    except BrokenPipeError:  # the reader has closed the pipe: the exit code stays that of the command
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        return _complain(f"{error.filename or ''}: {error.strerror or error}", RunBrokenError.exit_code)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    return code


def _complain(what: str, code: int) -> int:
    sys.stderr.write(f"fusionkit: {visible(' '.join(what.split()))}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
