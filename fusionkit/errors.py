"""The errors that fusionkit raises: one line each, with cause, place and remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

# Errors that user code may raise: anything but an interrupt.
USER_CODE_ERRORS = (Exception, SystemExit)


class FusionKitError(Exception):
    """Root of all errors raised by fusionkit; `exit_code` is what a command ends with."""

    exit_code: ClassVar[int] = 2


class MisuseError(FusionKitError):
    """Bad input: a file, parameter, name or value that cannot be used as given."""


class DryRunError(FusionKitError):
    """A computation on target npu-dry, which has graphs, shapes and dtypes only."""


class RunBrokenError(FusionKitError):
    """The run itself broke: a kernel died, a limit was hit, the disk is full."""

    exit_code: ClassVar[int] = 3


def near_names(name: str, known: Iterable[str]) -> str:
    """The known name that is nearest to an unknown one, as a question, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean '{near[0]}'?" if near else f"known: {', '.join(names)}"
