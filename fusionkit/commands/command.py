"""What a command is to the table of commands."""

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
    """A row: `configure` adds arguments, `execute` does the work and returns the exit code.

    `example` is shown by --help. A module with commands imports at its top only what is cheap to import.
    """

    name: str
    summary: str
    example: str
    configure: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace], int]


def write_line(text: str) -> None:
    """One line of result, on standard output; what would steer a terminal is written out."""
    sys.stdout.write(visible(text) + "\n")


def write_result(value: Any) -> None:
    """A result as JSON, on standard output."""
    sys.stdout.write(visible_json(to_json(value)) + "\n")
