"""Keeps what a proof starts within reach: the process that `prove` has forked for it.

It forks the worker and outlives it. On Linux it is the reaper of all that descends from it, so that a process which the
proven code put into a session of its own is still found, and killed, when the worker ends or the kit sends SIGTERM. This
is no sandbox: code that kills its supervisor, or that asks another service to start something, gets away.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from fusionkit.processes import kill_descendants, set_child_subreaper, set_death_signal


def main(folder: str) -> int:
    """Run the worker in a child; its exit code, once nothing that descends from this process is left."""
    set_child_subreaper()
    supervisor = os.getpid()
    worker = os.fork()
    if not worker:
        set_death_signal(signal.SIGKILL)
        if os.getppid() == supervisor:
            from fusionkit.identify.proving.worker import prove_folder

            prove_folder(Path(folder))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: _end(worker))
    status = os.waitstatus_to_exitcode(_wait(worker))
    kill_descendants()
    return status if status >= 0 else 128 - status


def _wait(worker: int) -> int:
    """The status of the worker; orphans that end before it are reaped."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == worker:
            return status


def _end(worker: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)
    kill_descendants()
    os._exit(1)
