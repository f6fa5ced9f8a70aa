"""A thread that watches memory and run time of a kernel's processes, and kills them at a limit."""

from __future__ import annotations

import threading
import time

import psutil

from fusionkit.execution.limits import GIB, Limits

_POLL_S = 0.2


class Watchdog:
    """Watches one kernel from `watch` to `close`; `breach`: the exceeded limit for which it was killed."""

    def __init__(self, limits: Limits) -> None:
        self.breach: str | None = None
        self._limits = limits
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._processes: set[psutil.Process] = set()

    def watch(self, pid: int) -> None:
        """Start watching the process and whatever it starts."""
        try:
            root = psutil.Process(pid)
        except psutil.Error:
            return  # it has ended already; its client reports that
        self._processes.add(root)
        self._thread = threading.Thread(target=self._loop, args=(root,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching, and end the processes that outlived the kernel."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        self._kill()

    def _loop(self, root: psutil.Process) -> None:
        deadline = time.monotonic() + self._limits.timeout_s
        while not self._closed.wait(_POLL_S):
            self._processes |= _family(root)
            resident = sum(_resident_bytes(process) for process in self._processes)
            if resident > self._limits.memory_bytes:
                limit = self._limits.memory_bytes / GIB
                self.breach = (
                    f"memory limit reached: {resident / GIB:.2f} of {limit:.3g} GiB (--memory-limit)"
                )
            elif time.monotonic() > deadline:
                self.breach = f"time limit reached: {self._limits.timeout_s:g} s (--timeout)"
            if self.breach:
                self._kill()
                return

    def _kill(self) -> None:
        for process in list(self._processes):
            self._processes |= _family(process)
        for process in self._processes:
            try:
                process.kill()  # psutil compares the start time first: a reused process id is left alone
            except psutil.Error:
                continue


def _family(process: psutil.Process) -> set[psutil.Process]:
    try:
        return {process, *process.children(recursive=True)}
    except psutil.Error:
        return set()


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
