"""A command, which is a row of the table of commands, and its output."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fusionkit.store import to_json
from fusionkit.visible import visible, visible_json


@dataclass(frozen=True, slots=True)
class Command:
    """`configure` adds the arguments, `execute` runs the command and returns the exit code.

    `example` is shown by --help. Modules with commands import at module level only what is cheap to import.
    """

    name: str
    summary: str
    example: str
    configure: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace], int]


def write_line(text: str) -> None:
    """Write one line to standard output, with control characters escaped."""
    sys.stdout.write(visible(text) + "\n")


def write_result(value: Any) -> None:
    """Write a result as JSON to standard output."""
    sys.stdout.write(visible_json(to_json(value)) + "\n")


def write_report(arguments: argparse.Namespace, report: Any, write_lines: Callable[[Any], None]) -> None:
    """Write a report as JSON with the option `--json`, else with `write_lines`."""
    if arguments.json:
        write_result(report.to_dict())
    else:
        write_lines(report)


def step(text: str) -> None:
    """Announce the next step of a long command, if standard error is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{visible(text)} ...\n")
        sys.stderr.flush()
