"""Keeps what a proof starts within reach: `python -m fusionkit.identify.proving.supervisor FOLDER`, started by `prove`.

It forks the worker and outlives it. On Linux it is the reaper of all that descends from it, so that a process which the
proven code put into a session of its own is still found, and killed, when the worker ends or the kit sends SIGTERM. This
is no sandbox: code that kills its supervisor, or that asks another service to start something, gets away.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

from fusionkit.processes import disable_backend_autoload

_SET_PDEATHSIG = 1  # linux/prctl.h
_SET_CHILD_SUBREAPER = 36


def main(folder: Path) -> int:
    """Run the worker in a child; its exit code, once nothing that descends from this process is left."""
    _prctl(_SET_CHILD_SUBREAPER, 1)
    disable_backend_autoload()
    supervisor = os.getpid()
    worker = os.fork()
    if not worker:
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == supervisor:
            from fusionkit.identify.proving.worker import prove_folder

            prove_folder(folder)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: _end(worker))
    status = os.waitstatus_to_exitcode(_wait(worker))
    _kill_descendants()
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
    _kill_descendants()
    os._exit(1)


def _kill_descendants() -> None:
    """Kill all that descends from this process, until nothing is left: the orphans of what is killed come to it."""
    while True:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def descendants(root: int) -> list[int]:
    """Ids of the processes that descend from `root`; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # pid (name, which may hold anything) state ppid
            parent = int(entry.read_text("utf-8", "replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    found: list[int] = []
    front = [root]
    while front:
        front = [child for pid in front for child in children.get(pid, ())]
        found += front
    return found


def _prctl(option: int, value: int) -> None:
    """Linux alone has it; elsewhere only the worker's own session is ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
