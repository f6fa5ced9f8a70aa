"""What the processes that the kit starts have in common: their environment, how they end, and how an end reads."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

# Unless this is 0, `import torch` loads an installed torch_npu: without CANN that fails, and with CANN it precedes the
# choice of the target.
BACKEND_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"

_SET_PDEATHSIG = 1  # linux/prctl.h
_SET_CHILD_SUBREAPER = 36


def disable_backend_autoload() -> None:
    """Keep a later `import torch` from loading torch_npu, in this process and its children."""
    os.environ[BACKEND_AUTOLOAD] = "0"


def module_command(module: str, *words: str) -> list[str]:
    """`python -m module words` with this interpreter and this process's own sys.path, whatever the current folder holds."""
    run = f"import sys; sys.path[:] = {sys.path!r}; import runpy; runpy.run_module({module!r}, None, '__main__', True)"
    return [sys.executable, "-P", "-c", run, *words]


def ending(return_code: int) -> str:
    """A return code of `subprocess` in words: "exit code 3", or the name of the signal, such as "SIGABRT"."""
    if return_code >= 0:
        return f"exit code {return_code}"
    try:
        return signal.Signals(-return_code).name
    except ValueError:
        return f"signal {-return_code}"


def kill_descendants() -> None:
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
    below: list[int] = []
    front = [root]
    while front:
        front = [child for pid in front for child in children.get(pid, ())]
        below += front
    return below


def set_child_subreaper() -> None:
    """Become the parent of all orphans that descend from this process, on Linux."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def set_death_signal(number: int) -> None:
    """Get this signal when the parent dies, on Linux."""
    _prctl(_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
