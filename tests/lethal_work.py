"""Work that kills the process which does it, for tests of the pool: a spawned process imports it by its name."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def square(job: tuple[Path, int, str]) -> str:
    """The square of a number as text, after the harm that the job names; every attempt leaves a line in its folder."""
    folder, number, harm = job
    log = folder / f"{number}"
    with log.open("a") as stream:
        stream.write(f"{os.getpid()}\n")
    attempts = len(log.read_text().split())
    if harm == "always" or (harm == "once" and attempts == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if harm == "raise":
        raise ValueError("no luck\nat all")
    return str(number**2) * 100_000  # more than a pipe holds


def sending(job: tuple[Path, int, str]) -> object:
    """A result that kills the process while it is sent."""
    _, number, harm = job
    return _Lethal() if harm else number


class _Lethal:
    def __reduce__(self) -> tuple[object, ...]:
        os.kill(os.getpid(), signal.SIGKILL)
        return (int, ())


if "FUSIONKIT_TEST_LETHAL_START" in os.environ:
    os._exit(7)
