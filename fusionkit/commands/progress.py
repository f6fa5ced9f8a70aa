"""Progress of a long command: lines on standard error, if that is a terminal."""

from __future__ import annotations

import sys

from fusionkit.visible import visible


def step(text: str) -> None:
    """Announce the next step, if standard error is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{visible(text)} ...\n")
        sys.stderr.flush()
