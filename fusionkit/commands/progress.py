"""Progress of a command that takes more than a moment: lines on a terminal's standard error, none elsewhere."""

from __future__ import annotations

import sys

from fusionkit.visible import visible


def step(text: str) -> None:
    """Say what begins now, to whoever watches a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{visible(text)} ...\n")
        sys.stderr.flush()
