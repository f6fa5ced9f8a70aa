"""The errors that fusionkit raises: one clear line each, naming what is wrong, where, and what to do."""

from __future__ import annotations

from typing import ClassVar

# What running a user's own code may raise: anything but an interrupt.
USER_CODE_ERRORS = (Exception, SystemExit)


class FusionKitError(Exception):
    """Root of all errors raised by fusionkit; `exit_code` is what a command ends with."""

    exit_code: ClassVar[int] = 2


class MisuseError(FusionKitError):
    """Bad input: a file, parameter, name or value that cannot be used as given."""


class DryRunError(FusionKitError):
    """A real computation was asked of target npu-dry, which has graphs, shapes and dtypes only."""


class RunBrokenError(FusionKitError):
    """The run itself broke: a kernel died, a limit was hit, the disk is full."""

    exit_code: ClassVar[int] = 3
