"""The processes that read: an interrupt ends them without a word, and only the process that started them hears it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, resource_tracker


@contextmanager
def pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes to hand work to; whatever ends the block early, they end with it and nothing waits for their work."""
    before = set(active_children())
    readers = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
    try:
        yield readers
    except BaseException:
        readers.shutdown(wait=False, cancel_futures=True)
        for child in set(active_children()) - before:
            child.terminate()
        raise
    finally:
        readers.shutdown()


@contextmanager
def quietly() -> Iterator[None]:
    """Start processes in this block: they never hear the interrupt of a terminal, which goes to all of a group.

    A process takes over which signals are blocked. One that comes meanwhile is heard at the end of the block.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # its first start would unblock the interrupt
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
